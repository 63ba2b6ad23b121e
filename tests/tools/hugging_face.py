"""A directory as Hugging Face's transformers writes it, with a tokenizer of byte pairs, and what they make of it.

hugging_face.py DIR writes DIR/NAME for each model, DIR/text, and beside each model greedy (the text that follows the prompt) and loss
(of the whole text, in windows that follow each other).  Exits with 77 where transformers is missing."""
import os, sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
try:
    import torch, transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)
transformers.utils.logging.disable_progress_bar()

END, SIZE, CONTEXT, TOKENS = "<|endoftext|>", 300, 48, 24
TEXT = "Grüße an die Welt, sagte der Müller; it's 12 o'clock, they said.\n" * 9 + "Ende 😀"
PROMPT = "it's die Welt, "
SIZES = dict(vocab_size=SIZE, bos_token_id=0, eos_token_id=0)
MODELS = {
    "gpt2": GPT2Config(**SIZES, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4),
    "llama": LlamaConfig(**SIZES, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=CONTEXT),
}


def make_tokenizer():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token=END)


def greedy(model, tokenizer):
    """The text of tokens that are far from all others, of at least 8 and without zero bytes; None: there is none."""
    ids = tokenizer(PROMPT)["input_ids"]
    n = len(ids)
    while len(ids) < n + TOKENS:
        last = model(torch.tensor([ids])).logits[0, -1]
        best = last.topk(2).values
        if best[0] - best[1] < 1e-3 or last.argmax() == 0:
            break
        ids.append(int(last.argmax()))
    text = tokenizer.decode(ids[n:], clean_up_tokenization_spaces=False)
    return (len(ids) - n, text) if len(ids) >= n + 8 and "\0" not in text else None


def loss(model, ids):
    total, n = 0.0, len(ids) - 1
    for begin in range(0, n, CONTEXT):
        start = min(begin, n - CONTEXT)
        window = torch.tensor([ids[start:start + CONTEXT + 1]])
        each = torch.nn.functional.cross_entropy(model(window[:, :-1]).logits[0].double(), window[0, 1:], reduction="none")
        total += float(each[begin - start:].sum())
    return total / n


def make(root):
    tokenizer = make_tokenizer()
    with open(os.path.join(root, "text"), "w", newline="") as f:
        f.write(TEXT)
    for name, config in MODELS.items():
        config.initializer_range = 0.3
        for seed in range(100):
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(config).eval()
            follows = greedy(model, tokenizer)
            if follows:
                break
        path = os.path.join(root, name)
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
        with open(os.path.join(path, "greedy"), "w", newline="") as f:
            f.write(follows[1] + "\n")
        with open(os.path.join(path, "expected"), "w") as f:
            f.write("%d %.9f %d" % (follows[0], loss(model, tokenizer(TEXT)["input_ids"]), len(tokenizer(TEXT)["input_ids"]) - 1))


with torch.no_grad():
    make(sys.argv[1])
