#!/bin/sh
# report.sh OUT: OUT/report.json and OUT/report.html of the parts in OUT/parts, for bench/gpu.sh.
cd "$1/parts" || exit 1
export LC_ALL=C
plain() { tr -cd '\11\12\40-\176'; } # what drivers say may be anything
text() { plain | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'; }
# As the inside of a string of JSON.
escaped() { plain | sed 's/\\/\\\\/g; s/"/\\"/g; s/	/\\t/g' | awk '{ printf "%s%s", (NR > 1 ? "\\n" : ""), $0 }'; }
order="machine devices probes matrix digits kernels profiles mnist cifar torch tune bench predict cases mutants"
present() { for name in $order; do [ ! -e "$name.status" ] || echo "$name"; done; }

# clef's and PyTorch's answers to a line, seconds: "LINE<tab>CLEF<tab>TORCH", empty where one has none.
answers() {
    cat cases.log torch.log 2>/dev/null | awk -F ' => ' '
        / => / { if (!($1 in place)) { place[$1] = n; line[n++] = $1 } }
        / => seconds / { sub(/^seconds /, "", $2); if (ready ~ /torch/) torch[$1] = $2; else clef[$1] = $2 }
        /^ready / { ready = $0 }
        END { for (i = 0; i < n; i++) printf "%s\t%s\t%s\n", line[i], clef[line[i]], torch[line[i]] }'
}
# A field of such a line that awk computes: the rate of Clef in TFLOP/s where the line tells the work.
rates='function value(key) { return match(" " $1, " " key "=[^ ]*") ? substr(" " $1, RSTART + length(key) + 2, RLENGTH - length(key) - 2) : 0 }
    function flops(  stride, oh, ow) {
        if ($1 ~ /^gemm /) return 2 * value("m") * value("n") * value("k")
        if ($1 !~ /^conv /) return 0
        stride = value("stride")
        oh = int((value("h") + 2 * value("pad") - value("kh")) / stride) + 1
        ow = int((value("w") + 2 * value("pad") - value("kw")) / stride) + 1
        return 2 * value("n") * value("o") * oh * ow * value("c") / value("groups") * value("kh") * value("kw")
    }'

json() {
    printf '{"schema":1,"parts":['
    first=
    for name in $(present); do
        read -r code seconds result <"$name.status"
        printf '%s{"name":"%s","result":"%s","code":%s,"seconds":%s,"said":"' "$first" "$name" "$result" "$code" "$seconds"
        tail -n 40 "$name.log" 2>/dev/null | escaped
        printf '"}'
        first=,
    done
    printf ']'
    for file in *.jsonl; do
        [ -e "$file" ] || continue
        printf ',"%s":[' "${file%.jsonl}"
        awk '/^[{].*}$/ { printf "%s%s", (n++ ? "," : ""), $0 }' "$file"
        printf ']'
    done
    printf ',"answers":['
    answers | awk -F '\t' "$rates"' { printf "%s{\"case\":\"%s\",\"clef_seconds\":%s,\"torch_seconds\":%s,\"flops\":%.9g}", (NR > 1 ? "," : ""), $1,
        ($2 == "" ? "null" : $2), ($3 == "" ? "null" : $3), flops() }'
    printf ']}\n'
}

# Clef's own page of clef bench: what stands between two marks of it, each on a line of its own.
between() { [ ! -s bench.html ] || sed -n "/$1/,/$2/p" bench.html | sed "s/^.*<style>//; s/<\/style>.*//; s/<h1>Clef bench<\/h1>//; s/<\/*body>//g; s/<\/html>//"; }

html() {
    printf '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Clef on a GPU</title><style>\n'
    printf 'body{font:1rem/1.45 system-ui,sans-serif;margin:1rem auto;max-width:76rem}table{border-collapse:collapse}'
    printf 'th,td{padding:.3rem .7rem;text-align:left;border-top:1px solid #8888}td.n{text-align:right}pre{overflow-x:auto;font-size:.8rem}\n'
    between '<style>' '<\/style>'
    printf '</style></head><body>\n<h1>Clef on a GPU</h1>\n<pre>'
    [ ! -e devices.log ] || text <devices.log
    printf '</pre>\n<h2>Parts</h2>\n<table><tr><th>part<th>result<th>seconds<th>last line</tr>\n'
    for name in $(present); do
        read -r code seconds result <"$name.status"
        printf '<tr><td>%s<td>%s<td class="n">%s<td>%s</tr>\n' "$name" "$result" "$seconds" "$(tail -n 1 "$name.log" 2>/dev/null | text)"
    done
    printf '</table>\n<h2>Tests</h2>\n<table><tr><th>test<th>profile<th>exit code<th>seconds</tr>\n'
    cat kernels.jsonl profiles.jsonl matrix.jsonl 2>/dev/null |
        sed 's|{"test":"\(.*\)","profile":"\(.*\)","code":\(.*\),"seconds":\(.*\)}|<tr><td>\1<td>\2<td class="n">\3<td class="n">\4</tr>|'
    printf '</table>\n<h2>Trainings</h2>\n<pre>'
    for name in digits mnist cifar; do
        [ ! -s $name.jsonl ] || { echo "$name:" && tail -n 2 $name.jsonl | text; }
    done
    printf '</pre>\n<h2>Cases beside PyTorch</h2>\n<table><tr><th>case<th>Clef, ms<th>TFLOP/s<th>PyTorch, ms<th>PyTorch / Clef</tr>\n'
    answers | awk -F '\t' "$rates"' { printf "<tr><td>%s<td class=\"n\">%s<td class=\"n\">%s<td class=\"n\">%s<td class=\"n\">%s</tr>\n", $1,
        ($2 == "" ? "" : sprintf("%.4f", 1e3 * $2)), ($2 != "" && flops() ? sprintf("%.3f", 1e-12 * flops() / $2) : ""),
        ($3 == "" ? "" : sprintf("%.4f", 1e3 * $3)), ($2 != "" && $3 != "" ? sprintf("%.2f", $3 / $2) : "") }'
    printf '</table>\n'
    [ ! -s predict.log ] || { printf '<h2>Predicted (A) and measured (B)</h2>\n<pre>' && text <predict.log && printf '</pre>\n'; }
    between '<h1>' '<\/html>'
    printf '<h2>What failed said</h2>\n'
    for name in $(present); do
        read -r code seconds result <"$name.status"
        [ "$code" = 0 ] || { printf '<h3>%s: %s</h3><pre>' "$name" "$result" && tail -n 60 "$name.log" | text && printf '</pre>\n'; }
    done
    printf '<h2>Machine</h2>\n<pre>'
    [ ! -e machine.log ] || text <machine.log
    printf '</pre></body></html>\n'
}
json >../report.json
html >../report.html
