"""Small language models with random weights, by Hugging Face's transformers.

language.py make DIR    writes models into DIR/NAME, with tokens.npy, logits.npy (in double precision), error.npy (the distance of a plain
                        float32 run from those) and greedy.npy (the tokens that follow the first prompt, -1 from where the two best are close)
                        and beams_P.npy, beam_scores_P.npy (three results of four beams with a length penalty of P/10, padded by -1)
                        and encoders, with tokens.npy, types.npy, lengths.npy, logits.npy, error.npy and the gradients grad.NAME.npy of the mean
                        cross-entropy of classes.npy
language.py check DIR   reads DIR/NAME/saved, which Clef wrote, and compares its logits with logits.npy
Exits with 77 where transformers is missing."""
import os, sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
try:
    import numpy as np, torch, transformers
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig
    from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen2Config
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)
transformers.utils.logging.disable_progress_bar()

GPT = dict(vocab_size=67, n_positions=40, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1)
LLAMA = dict(vocab_size=67, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=40, bos_token_id=0, eos_token_id=1)
MODELS = {
    "gpt2": (GPT2Config(**GPT), torch.float32, "1GB"),
    "gpt2_parts": (GPT2Config(**GPT, activation_function="gelu", n_inner=24), torch.float32, "20KB"),
    "gpt2_untied": (GPT2Config(**GPT, tie_word_embeddings=False), torch.float32, "1GB"),
    "gpt2_bf16": (GPT2Config(**GPT), torch.bfloat16, "1GB"),
    "llama": (LlamaConfig(**LLAMA), torch.float32, "20KB"),
    "llama_tied": (LlamaConfig(**LLAMA, tie_word_embeddings=True, head_dim=6, rope_theta=500.0), torch.float32, "1GB"),
    "llama_bf16": (LlamaConfig(**LLAMA), torch.bfloat16, "1GB"),
    "mistral": (MistralConfig(**LLAMA, sliding_window=None), torch.float32, "1GB"),
    "qwen2": (Qwen2Config(**LLAMA), torch.float16, "1GB"),
}
BERT = dict(vocab_size=67, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=40)
ENCODERS = {
    "bert": (BertConfig(**BERT), torch.float32),
    "bert_classes": (BertConfig(**BERT, num_labels=5, type_vocab_size=3, hidden_act="gelu_new", layer_norm_eps=1e-5), torch.float32),
    "bert_bf16": (BertConfig(**BERT, num_labels=3), torch.bfloat16),
}
PROMPT, GREEDY = 5, 12
PENALTIES = 0, 10, -5, 20


def logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens)).logits.double().numpy()


def greedy(model, tokens, error):
    ids = list(tokens[0, :PROMPT])
    for _ in range(GREEDY):
        last = logits(model, [ids])[0, -1]
        best = np.sort(last)[-2:]
        if best[1] - best[0] < 100 * error:
            break
        ids.append(int(last.argmax()))
    return np.array(ids[PROMPT:] + [-1] * (PROMPT + GREEDY - len(ids)), dtype=np.int64)


def beams(model, tokens, penalty, path):
    """Two prompts of one length; 7 and 30 end a text beside 1, so that results are of different lengths."""
    got = model.generate(torch.tensor(tokens[:2, :PROMPT]), attention_mask=torch.ones(2, PROMPT, dtype=torch.long), num_beams=4,
                         num_return_sequences=3, max_new_tokens=GREEDY, length_penalty=penalty / 10, do_sample=False,
                         eos_token_id=[1, 7, 30], pad_token_id=66, return_dict_in_generate=True, output_scores=True)
    # What follows an end token is padding; beam indices are -1 there.
    after = got.sequences[:, PROMPT:].numpy()
    after = np.where(got.beam_indices.numpy()[:, :after.shape[1]] < 0, -1, after)
    after = np.pad(after, ((0, 0), (0, GREEDY - after.shape[1])), constant_values=-1)
    np.save(os.path.join(path, f"beams_{penalty}.npy"), after.reshape(2, 3, GREEDY).astype(np.int64))
    np.save(os.path.join(path, f"beam_scores_{penalty}.npy"), got.sequences_scores.double().numpy().reshape(2, 3))


def encode(model, path):
    tokens, types, lengths = (torch.from_numpy(np.load(os.path.join(path, f"{part}.npy"))) for part in ("tokens", "types", "lengths"))
    seen = torch.arange(tokens.shape[1])[None] < lengths[:, None]
    return model(input_ids=tokens, token_type_ids=types, attention_mask=seen.long()).logits


def make_encoder(path, config, dtype):
    config.initializer_range = 0.3
    model = AutoModelForSequenceClassification.from_config(config).eval().to(dtype)
    for p in model.parameters():
        if p.dim() == 1:
            p.data += 0.1 * torch.randn(p.shape).to(dtype)
    model.save_pretrained(path)
    random = np.random.default_rng(7)
    parts = {"tokens": random.integers(1, 67, (4, 24)),  # transformers gives token 0, its padding, no gradient
             "types": random.integers(0, config.type_vocab_size, (4, 24)),
             "lengths": np.array([24, 1, 7, 20]), "classes": random.integers(0, config.num_labels, 4)}
    for name, part in parts.items():
        np.save(os.path.join(path, f"{name}.npy"), part)
    with torch.no_grad():
        plain = encode(model.float(), path).double()
    exact = encode(model.double(), path)
    torch.nn.functional.cross_entropy(exact, torch.from_numpy(parts["classes"])).backward()
    np.save(os.path.join(path, "logits.npy"), exact.detach().numpy())
    np.save(os.path.join(path, "error.npy"), (plain - exact.detach()).square().mean().sqrt().numpy())
    for name, p in model.named_parameters():
        np.save(os.path.join(path, f"grad.{name}.npy"), p.grad.numpy())


def make(root):
    for name, (config, dtype) in ENCODERS.items():
        torch.manual_seed(len(name))
        make_encoder(os.path.join(root, name), config, dtype)
    for name, (config, dtype, shard) in MODELS.items():
        torch.manual_seed(len(name))
        config.initializer_range = 0.3  # so that tokens are far apart
        model = AutoModelForCausalLM.from_config(config).eval().to(dtype)
        for p in model.parameters():  # biases and norms, too
            if p.dim() == 1:
                p.data += 0.1 * torch.randn(p.shape).to(dtype)
        path = os.path.join(root, name)
        model.save_pretrained(path, max_shard_size=shard)
        tokens = np.random.default_rng(3).integers(0, 67, (3, 40))
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()  # with frequencies that were never rounded
        plain, exact = logits(model, tokens), logits(model.double(), tokens)
        error = np.sqrt(np.mean((plain - exact) ** 2))
        np.save(os.path.join(path, "tokens.npy"), tokens)
        np.save(os.path.join(path, "logits.npy"), exact)
        np.save(os.path.join(path, "error.npy"), error)
        np.save(os.path.join(path, "greedy.npy"), greedy(model, tokens, error))
        for penalty in PENALTIES:
            beams(model, tokens, penalty, path)


def check(root):
    for name in [*MODELS, *ENCODERS]:
        path = os.path.join(root, name)
        kind = AutoModelForCausalLM if name in MODELS else AutoModelForSequenceClassification
        model, info = kind.from_pretrained(os.path.join(path, "saved"), output_loading_info=True)
        keys = {k: v for k, v in info.items() if v and k != "error_msgs"}
        model = model.eval().double()
        with torch.no_grad():
            got = logits(model, np.load(os.path.join(path, "tokens.npy"))) if name in MODELS else encode(model, path).numpy()
        far = np.abs(got - np.load(os.path.join(path, "logits.npy"))).max()
        if far > 1e-9 or keys:
            print(name, "saved by Clef: logits differ by", far, keys)
            sys.exit(1)


{"make": make, "check": check}[sys.argv[1]](sys.argv[2])
