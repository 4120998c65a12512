#!/bin/sh
# Draws one step of a trace as a picture: what each rank computed, what was reduced meanwhile, where it waited.
#
#   plot-trace.sh TRACE_DIR OUTPUT     writes OUTPUT.gp, OUTPUT.svg and OUTPUT.png; OUTPUT.gp draws them again
set -eu
[ $# = 2 ] || { echo "usage: $0 TRACE_DIR OUTPUT" >&2; exit 2; }
command -v gnuplot > /dev/null || { echo "$0: needs gnuplot (apt-get install gnuplot-nox)" >&2; exit 1; }

# An event a line: {"ph":"X","pid":RANK,"tid":LINE,"ts":MICROSECONDS,"dur":MICROSECONDS,"cat":"...","name":"..."}
# The step drawn is rank 0's last but one: from its forward's beginning to its optimizer's end.
cat "$1"/rank-*.json | awk -v output="$(basename "$2")" '
    function field(key) {
        if (!match($0, "\"" key "\":(\"[^\"]*\"|[0-9.]+)")) return ""
        value = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
        gsub(/"/, "", value)
        return value
    }
    /"ph":"M"/ && /"thread_name"/ {
        match($0, /"args":[{]"name":"[^"]*/)
        found = substr($0, RSTART + 16, RLENGTH - 16)
        line_name[field("pid") + 0, field("tid") + 0] = found
    }
    /"ph":"X"/ {
        n++
        rank[n] = field("pid") + 0; line[n] = field("tid") + 0; start[n] = field("ts") + 0; end[n] = start[n] + field("dur")
        category[n] = field("cat"); name[n] = field("name")
        if (rank[n] == 0 && category[n] == "forward") forward[++steps] = start[n]
        if (rank[n] == 0 && category[n] == "optimizer") optimizer[steps] = end[n]
        if (rank[n] > last_rank) last_rank = rank[n]
    }
    END {
        step = steps > 1 ? steps - 1 : steps
        from = forward[step]; to = optimizer[step]
        if (!to) { print "no whole step in the trace" > "/dev/stderr"; exit 1 }
        # Rows from the top: each rank, and under it its communication.
        for (r = 0; r <= last_rank; r++)
            for (is_communication = 0; is_communication < 2; is_communication++) row[r, is_communication] = -(2.3 * r + is_communication)
        colour["forward"] = "0x6baed6"; colour["backward"] = "0x3182bd"; colour["optimizer"] = "0x9e9ac8"
        colour["bucket"] = "0xfd8d3c"; colour["wait"] = "0xbdbdbd"; colour["user"] = colour["data"] = "0xa1d99b"

        print "# Draws " output ".svg and " output ".png: gnuplot " output ".gp"
        print "$spans << EOD"
        # Long spans first: what they contain is drawn over them.
        for (i = 1; i <= n; i++) order[i] = i
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && end[order[j]] - start[order[j]] > end[order[j - 1]] - start[order[j - 1]]; j--) {
                swap = order[j]; order[j] = order[j - 1]; order[j - 1] = swap
            }
        for (k = 1; k <= n; k++) {
            i = order[k]
            if (end[i] <= from || start[i] >= to) continue
            left = (start[i] > from ? start[i] - from : 0) / 1000; right = ((end[i] < to ? end[i] : to) - from) / 1000
            y = row[rank[i], line_name[rank[i], line[i]] == "communication"]
            label = right - left > (to - from) / 1000 * 0.075 ? name[i] : ""
            printf "%.4f %.4f %.2f %s \"%s\"\n", left, right, y, colour[category[i]], label
        }
        print "EOD"
        printf "set yrange [%.2f:0.7]; set xrange [0:%.4f]\n", row[last_rank, 1] - 0.7, (to - from) / 1000
        printf "set ytics ("
        for (r = 0; r <= last_rank; r++)
            printf "%s\"rank %d\" %.2f, \"communication\" %.2f", r ? ", " : "", r, row[r, 0], row[r, 1]
        print ") scale 0\nset border 1 lc rgb \"#666666\"; set xtics nomirror out; set xlabel \"milliseconds\""
        print "set key outside top center horizontal width 2 samplen 1"
        print "set style fill solid border lc rgb \"#ffffff\""
        print "do for [kind in \"svg png\"] {"
        printf "    if (kind eq \"svg\") { set terminal svg size 900,%d font \"sans,14\" background \"white\" }\n", 110 + 90 * (last_rank + 1)
        printf "    else { set terminal pngcairo size 900,%d font \"sans,11\" }\n", 110 + 90 * (last_rank + 1)
        print "    set output \"" output ".\".kind"
        print "    plot $spans using ($1 + $2) / 2:3:1:2:($3 - 0.42):($3 + 0.42):4 with boxxyerror lc rgb variable notitle, \\"
        printf "         $spans using ($1 + $2) / 2:3:5 with labels tc rgb \"#ffffff\" notitle"
        parts = split("forward backward optimizer bucket wait", part)
        for (i = 1; i <= parts; i++)
            printf ", \\\n         keyentry with boxes fc rgb %s title \"%s\"", colour[part[i]], part[i] == "bucket" ? "reduction" : part[i]
        print ""
        print "    unset output"
        print "}"
    }' > "$2.gp"
cd "$(dirname "$2")" && gnuplot "$(basename "$2").gp"
