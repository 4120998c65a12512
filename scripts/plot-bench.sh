#!/bin/sh
# Draws what `lockstep bench all-reduce --json` printed: the median time of a blocking call over the size, each rank having just
# written its buffer, with a curve for the library on each kind of memory, for what is reachable, and for each peer. Writes
# OUTPUT.csv and OUTPUT.gp, from which gnuplot draws OUTPUT.png.
#
#   plot-bench.sh LINES OUTPUT       for instance: plot-bench.sh bench.json output/all-reduce
set -eu
if [ $# -ne 2 ]; then echo "usage: $0 LINES OUTPUT" >&2; exit 2; fi
lines=$1 output=$2 name=$(basename "$2")
mkdir -p "$(dirname "$output")"

# A line a size, a column a curve. A peer's version tells its builds apart.
awk '
    function field(name,   at) {
        at = substr($0, index($0, "\"" name "\":") + length(name) + 3)
        if (substr(at, 1, 1) == "\"") { at = substr(at, 2); sub(/".*/, "", at) } else sub(/[,}].*/, "", at)
        return at
    }
    field("mode") == "blocking" && field("pattern") == "fresh" {
        impl = field("impl"); version = field("version"); bytes = field("bytes"); sub(/\+.*/, "", version)
        curve = impl == "lockstep-shm" ? "Lockstep (" field("memory") " memory)" : impl == "reachable" ? impl : impl " " version
        if (!(curve in known)) { known[curve] = 1; curves[++curve_count] = curve }
        if (!(bytes in seen)) { seen[bytes] = 1; sizes[++size_count] = bytes }
        time[curve, bytes] = field("median_us")
    }
    END {
        printf "bytes"
        for (c = 1; c <= curve_count; c++) printf ",%s", curves[c]
        for (s = 1; s <= size_count; s++) {
            printf "\n%s", sizes[s]
            for (c = 1; c <= curve_count; c++) printf ",%s", time[curves[c], sizes[s]]
        }
        print ""
    }' "$lines" > "$output.csv"

cat > "$output.gp" << END
# Draws $name.png from $name.csv: gnuplot $name.gp
set datafile separator comma
set terminal pngcairo size 1000,560 font 'sans,11'; set output '$name.png'
set border 3 lc rgb '#666666'; set tics nomirror out; set grid lc rgb '#dddddd' lt 1
set logscale xy; set key outside right top samplen 2 spacing 1.2
set xtics ('4 B' 4, '64 B' 64, '1 KiB' 1024, '16 KiB' 16384, '256 KiB' 262144, '4 MiB' 4194304, '100 MiB' 104857600)
set xlabel 'size of each rank''s buffer'; set ylabel 'one all-reduce, microseconds'; set format y '%g'
colours = '#0072b2 #56b4e9 #000000 #d55e00 #e69f00 #cc79a7 #009e73 #999999 #f0e442 #8b5a2b'
plot for [i = 2:$(head -n 1 "$output.csv" | awk -F, '{ print NF }')] '$name.csv' using 1:i with linespoints lc rgb word(colours, i - 1) \\
     lw (i < 5 ? 2.5 : 1.2) pt 7 ps 0.6 title columnhead(i)
END
if command -v gnuplot > /dev/null; then
    (cd "$(dirname "$output")" && gnuplot "$name.gp")
else
    echo "$0: gnuplot is not installed: cd $(dirname "$output") && gnuplot $name.gp draws it" >&2
fi
