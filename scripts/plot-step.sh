#!/bin/sh
# Draws one step of a trace: a lane for each rank and thread, one for its buckets in flight. Of the steps in the trace the
# one of median length is taken. Writes OUTPUT.csv and OUTPUT.gp, from which gnuplot draws OUTPUT.svg and OUTPUT.png.
#
#   plot-step.sh TRACE_DIR OUTPUT       for instance: plot-step.sh output/trace output/step
set -eu
if [ $# -ne 2 ]; then echo "usage: $0 TRACE_DIR OUTPUT" >&2; exit 2; fi
trace=$1 output=$2
[ -f "$trace/rank-0.json" ] || { echo "$0: there is no rank-0.json in $trace" >&2; exit 1; }
mkdir -p "$(dirname "$output")"

# The trace has one event a line. Times become milliseconds from the step's start.
awk '
    function field(name,   at) {
        at = index($0, "\"" name "\":")
        if (!at) return ""
        at = substr($0, at + length(name) + 3)
        if (substr(at, 1, 1) == "\"") { at = substr(at, 2); sub(/".*/, "", at) } else sub(/[,}].*/, "", at)
        return at
    }

    # Metadata: thread names, {"ph":"M",...,"args":{"name":"communication"}}.
    /"thread_name"/ {
        name = $0; sub(/.*"args":\{"name":"/, "", name); sub(/".*/, "", name)
        thread[field("pid"), field("tid")] = name
        if (field("pid") + 0 > last_rank) last_rank = field("pid") + 0
        if (field("tid") + 0 > last_line) last_line = field("tid") + 0
        next
    }
    !/"ph":"X"/ { next }
    {
        count++
        rank[count] = field("pid") + 0; line[count] = field("tid") + 0
        kind[count] = field("cat"); label[count] = field("name")
        from[count] = field("ts") / 1000; to[count] = from[count] + field("dur") / 1000
        if (kind[count] == "forward") { trains[rank[count]] = line[count]; begins[rank[count], ++forwards[rank[count]]] = from[count] }
        if (kind[count] == "optimizer") ends[rank[count], ++optimizers[rank[count]]] = to[count]
    }

    # The step of median length on rank 0.
    function choose(   i, j, longer) {
        for (i = 1; i <= optimizers[0]; i++) {
            longer = 0
            for (j = 1; j <= optimizers[0]; j++)
                if (length_of(j) > length_of(i) || (length_of(j) == length_of(i) && j > i)) longer++
            if (longer == int(optimizers[0] / 2)) return i
        }
        return 0
    }
    function length_of(i) { return ends[0, i] - begins[0, i] }

    # Lanes that have something to show, from the top: of each rank the training thread, then the others.
    function lane_name(r, l) {
        if (l == trains[r]) return "training"
        return thread[r, l] == "communication" ? "buckets in flight" : thread[r, l]
    }
    function add_lanes(r,   l, i, shows) {
        for (l = 0; l <= last_line; l++) {
            shows = 0
            for (i = 1; i <= count && !shows; i++) shows = rank[i] == r && line[i] == l && is_inside(i)
            if (shows) { lane[r, l] = -lanes++; printf "lane,%d,,,rank %d  %s\n", lane[r, l], r, lane_name(r, l) }
        }
    }
    # What belongs to this step of its rank; what is read ahead knows no steps and is cut at its borders.
    function is_inside(i) {
        if (kind[i] == "data") return to[i] > start && from[i] < end
        return from[i] >= begins[rank[i], step] && to[i] <= ends[rank[i], step]
    }

    END {
        step = choose()
        if (!step) { print "no whole step is in the trace" > "/dev/stderr"; exit 1 }
        start = begins[0, step]; end = ends[0, step]
        for (r = 1; r <= last_rank; r++) {
            if (begins[r, step] < start) start = begins[r, step]
            if (ends[r, step] > end) end = ends[r, step]
        }
        print "kind,lane,from_ms,to_ms,name"
        for (r = 0; r <= last_rank; r++) add_lanes(r)
        for (i = 1; i <= count; i++) {
            if (!is_inside(i)) continue
            # A name that would stand on the one before it moves to the right.
            at = ""
            if (kind[i] == "bucket") {
                at = (from[i] + to[i]) / 2; r = rank[i]
                if (placed[r] != "" && at < placed[r] + (end - start) / 60) at = placed[r] + (end - start) / 60
                placed[r] = at
                number = label[i]; sub(/[^0-9]*/, "", number)
                printf "number,%d,%.4f,,%s\n", lane[r, line[i]], at - start, number
            }
            printf "%s,%d,%.4f,%.4f,%s\n", kind[i], lane[rank[i], line[i]], (from[i] > start ? from[i] : start) - start,
                   (to[i] < end ? to[i] : end) - start, label[i]
        }
    }' "$trace"/rank-*.json > "$output.csv"

lanes=$(grep -c '^lane,' "$output.csv")
length=$(awk -F, 'NR > 1 && $4 + 0 > most { most = $4 } END { print most }' "$output.csv")
name=$(basename "$output")

# Colours that stay apart for the colour-blind (Okabe and Ito, 2008); bars of a kind drawn later lie over earlier ones.
cat > "$output.gp" << END
# Draws $name.svg and $name.png from $name.csv: gnuplot $name.gp
set datafile separator comma
set border 1 lc rgb '#666666'; set xtics nomirror out; set grid xtics lc rgb '#dddddd' lt 1
set xlabel 'milliseconds from the start of the step'; set xrange [0:$length]; set yrange [-$lanes + 0.4:0.75]
set lmargin 26; set rmargin 3; set key outside top center horizontal samplen 1.5 width 1
unset ytics
kinds = 'forward backward optimizer bucket wait data user'
colours = '#56b4e9 #0072b2 #009e73 #e69f00 #d55e00 #999999 #cc79a7'
titles = "forward backward optimizer 'bucket in flight' 'wait for a bucket' 'reading ahead' user"
has(kind) = int(system(sprintf("grep -c '^%s,' '$name.csv' || true", kind)))
is(kind) = sprintf("< grep '^%s,' '$name.csv'", kind)
do for [kind in 'svg png'] {
    if (kind eq 'svg') { set terminal svg size 1000,$((lanes * 46 + 120)) font 'sans,15' background 'white' }
    else { set terminal pngcairo size 1000,$((lanes * 46 + 120)) font 'sans,11' }
    set output '$name.'.kind
    plot is('lane') using (0):2:5 with labels right offset -1,0 notitle, \\
         for [i = 1:words(kinds)] (has(word(kinds, i)) ? is(word(kinds, i)) : "< echo bar,0,-9,-9,") \\
             using ((\$3 + \$4) / 2):2:3:4:(\$2 - 0.28):(\$2 + 0.28) with boxxyerror \\
             fs solid noborder lc rgb word(colours, i) title (has(word(kinds, i)) ? word(titles, i) : ''), \\
         (has('number') ? is('number') : "< echo number,0,-9,,") using 3:(\$2 + 0.42):5 with labels notitle
    unset output
}
END

if command -v gnuplot > /dev/null; then (cd "$(dirname "$output")" && gnuplot "$name.gp")
else echo "not drawn: \"apt-get install gnuplot-nox\", then \"cd $(dirname "$output") && gnuplot $name.gp\""
fi
