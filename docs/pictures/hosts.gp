# Draws hosts.svg and hosts.png from hosts.csv: gnuplot hosts.gp
set datafile separator comma; set datafile missing '-'
set border 3 lc rgb '#666666'; set tics nomirror; set grid lc rgb '#dddddd' lt 1
set logscale xy; set format y '%g'; set key top left reverse Left
set xlabel 'bytes a rank'; set ylabel 'milliseconds, median'
set xtics ('64 B' 64, '1 KiB' 1024, '16 KiB' 16384, '256 KiB' 262144, '4 MiB' 4194304, '16 MiB' 16777216)
# What the link alone takes for the bytes of pairwise shares: 2 (N-1)/N n at 1 Gbit/s.
wire(n) = 1.5 * n / 125e6 * 1e3
do for [kind in 'svg png'] {
    if (kind eq 'svg') { set terminal svg size 760,420 font 'sans,14' background 'white' }
    else { set terminal pngcairo size 760,420 font 'sans,11' }
    set output 'hosts.'.kind
    plot 'hosts.csv' using 1:($4 / 1e3) with linespoints pt 7 lc rgb '#999999' title 'Open MPI over TCP', \
         '' using 1:($2 / 1e3) with linespoints pt 7 lw 2 lc rgb '#0072b2' title 'Lockstep', \
         '' using 1:($3 / 1e3) with linespoints pt 6 lc rgb '#e69f00' title 'Lockstep, relaxed order', \
         [65536:16777216] wire(x) dt 2 lc rgb '#333333' title 'the wire alone, 1 Gbit/s'
    unset output
}
