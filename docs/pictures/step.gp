# Draws step.svg and step.png from step.csv: gnuplot step.gp
set datafile separator comma
set border 1 lc rgb '#666666'; set xtics nomirror out; set grid xtics lc rgb '#dddddd' lt 1
set xlabel 'milliseconds from the start of the step'; set xrange [0:53.7271]; set yrange [-4 + 0.4:0.75]
set lmargin 26; set rmargin 3; set key outside top center horizontal samplen 1.5 width 1
unset ytics
kinds = 'forward backward optimizer bucket wait data user'
colours = '#56b4e9 #0072b2 #009e73 #e69f00 #d55e00 #999999 #cc79a7'
titles = "forward backward optimizer 'bucket in flight' 'wait for a bucket' 'reading ahead' user"
has(kind) = int(system(sprintf("grep -c '^%s,' 'step.csv' || true", kind)))
is(kind) = sprintf("< grep '^%s,' 'step.csv'", kind)
do for [kind in 'svg png'] {
    if (kind eq 'svg') { set terminal svg size 1000,304 font 'sans,15' background 'white' }
    else { set terminal pngcairo size 1000,304 font 'sans,11' }
    set output 'step.'.kind
    plot is('lane') using (0):2:5 with labels right offset -1,0 notitle, \
         for [i = 1:words(kinds)] (has(word(kinds, i)) ? is(word(kinds, i)) : "< echo bar,0,-9,-9,") \
             using (($3 + $4) / 2):2:3:4:($2 - 0.28):($2 + 0.28) with boxxyerror \
             fs solid noborder lc rgb word(colours, i) title (has(word(kinds, i)) ? word(titles, i) : ''), \
         (has('number') ? is('number') : "< echo number,0,-9,,") using 3:($2 + 0.42):5 with labels notitle
    unset output
}
