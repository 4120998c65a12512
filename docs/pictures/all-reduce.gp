# Draws all-reduce.png from all-reduce.csv: gnuplot all-reduce.gp
set datafile separator comma
set terminal pngcairo size 1000,560 font 'sans,11'; set output 'all-reduce.png'
set border 3 lc rgb '#666666'; set tics nomirror out; set grid lc rgb '#dddddd' lt 1
set logscale xy; set key outside right top samplen 2 spacing 1.2
set xtics ('4 B' 4, '64 B' 64, '1 KiB' 1024, '16 KiB' 16384, '256 KiB' 262144, '4 MiB' 4194304, '100 MiB' 104857600)
set xlabel 'size of each rank''s buffer'; set ylabel 'one all-reduce, microseconds'; set format y '%g'
colours = '#0072b2 #56b4e9 #000000 #d55e00 #e69f00 #cc79a7 #009e73 #999999 #f0e442 #8b5a2b'
plot for [i = 2:11] 'all-reduce.csv' using 1:i with linespoints lc rgb word(colours, i - 1) \
     lw (i < 5 ? 2.5 : 1.2) pt 7 ps 0.6 title columnhead(i)
