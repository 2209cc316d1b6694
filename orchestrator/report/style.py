"""The page's style sheet: light and dark, on paper, and without any colour carrying a meaning alone.

Series colours are those of Okabe and Ito, told apart with every common colour blindness; the dark ones are lightened.
"""

from __future__ import annotations

_LIGHT = """--paper:#fff;--ink:#1a1c20;--soft:#555b66;--line:#d5d9e0;--panel:#f5f7fa;--good:#00694d;--bad:#b03a00;
--accent:#0060a0;--s0:#0072b2;--s1:#d55e00;--s2:#008a64;--s3:#b35a92;--s4:#9a6a00;--s5:#3a8fc4;--s6:#444a55;
--band:#0072b222"""
_DARK = """--paper:#14161a;--ink:#eceef2;--soft:#a9b0bd;--line:#3a3f49;--panel:#1d2026;--good:#4fd3aa;--bad:#ff9a62;
--accent:#7cc4ff;--s0:#56b4e9;--s1:#f0803c;--s2:#2fc79b;--s3:#e09ac4;--s4:#e6b43c;--s5:#9cd3f2;--s6:#c3c8d2;
--band:#56b4e930"""

CSS = (
    f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
"""
    """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.skip{position:absolute;left:-999px;top:0;background:var(--paper);padding:.6em 1em;z-index:9}
.skip:focus{left:0}
header,main,footer{max-width:1000px;margin:0 auto;padding:0 24px}
header{padding-top:28px}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .1em;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.4em 0 .5em;padding-top:.7em;border-top:2px solid var(--line)}
h3{font-size:1.02rem;margin:1.6em 0 .3em}
p{margin:.4em 0;max-width:75ch}
a{color:var(--accent)}
.sub,.note-text{color:var(--soft)}
.verdict{display:flex;flex-wrap:wrap;gap:8px 32px;align-items:baseline;background:var(--panel);
border-left:6px solid var(--good);padding:16px 20px;margin:18px 0;border-radius:4px}
.verdict.no{border-color:var(--bad)}
.verdict .big{font-size:2.6rem;font-weight:700;line-height:1.1;font-variant-numeric:tabular-nums}
.verdict .unit{font-size:1rem;font-weight:400;color:var(--soft);margin-left:.35em}
.verdict .word{font-weight:600;color:var(--good)}
.verdict.no .word{color:var(--bad)}
.verdict .words{flex:1 1 300px}
.verdict ul{margin:.2em 0 0;padding-left:1.2em}
dl.key{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px 24px;margin:14px 0}
dl.key dt{color:var(--soft);font-size:.82rem}
dl.key dd{margin:0;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:2px 18px;list-style:none;padding:0;margin:10px 0;font-size:.92rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums;margin:.4em 0}
caption{text-align:left;color:var(--soft);padding:4px 0;caption-side:top}
th,td{padding:4px 10px 4px 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td{overflow-wrap:break-word}
thead th{border-bottom:2px solid var(--line);font-weight:600}
th.num,td.num{text-align:right;white-space:nowrap;overflow-wrap:normal;padding-right:20px}
table.narrow{width:auto;min-width:20em}
table.narrow th,table.narrow td{padding-right:28px}
table.dense td{white-space:nowrap;overflow-wrap:normal}
td.late,td.wrong{font-weight:700;color:var(--bad)}
code,.mono{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:.92em;overflow-wrap:anywhere}
ol.steps{padding-left:1.4em}
ol.steps>li{margin:.8em 0}
ol.steps b{display:block}
ol.steps .mono{display:block;color:var(--soft)}
ol.steps .result{color:var(--ink);font-weight:600}
figure{margin:.6em 0 1.2em}
figcaption{color:var(--soft);font-size:.9rem}
.chart{display:block;width:100%;height:auto;overflow:visible}
.chart text,.tick{font:12.5px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink)}
.chart .tick{fill:var(--soft)}
.chart .label{fill:var(--soft);font-size:13px}
.chart .value{font-size:12px}
.halo{paint-order:stroke;stroke:var(--paper);stroke-width:4px}
.grid{stroke:var(--line);stroke-width:1}
.axis{stroke:var(--soft);stroke-width:1.2}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}
.hit{fill:none;stroke:transparent;stroke-width:12}
.dot{stroke-width:1.2}
.hollow{fill:var(--paper);stroke:var(--s0);stroke-width:2}
.mean{stroke:var(--s1);stroke-width:1.8;stroke-dasharray:8 4}
.target{stroke:var(--s1);stroke-width:1.8;stroke-dasharray:8 4}
.limit{stroke:var(--bad);stroke-width:2.4}
.reference{stroke:var(--s0);stroke-width:1.8;stroke-dasharray:2 3}
.band{fill:var(--band)}
.bar{stroke:var(--s0);stroke-width:1.2}
.bar.counted{fill:var(--s0)}
.bar.bad{stroke:var(--bad);stroke-width:2}
.patternback{fill:var(--paper)}
.patternline{stroke:var(--s0);stroke-width:1.4;fill:none}
.patterndot{fill:var(--s0)}
.defs{position:absolute}
.mark{outline:none}
.tip{visibility:hidden;pointer-events:none}
.tipbox{fill:var(--panel)}
.mark:hover .tip,.mark:focus .tip{visibility:visible}
.mark:hover .line,.mark:focus .line{stroke-width:4}
.mark:hover .bar,.mark:focus .bar{stroke:var(--ink);stroke-width:3}
.mark:focus .dot{stroke:var(--ink);stroke-width:3}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;list-style:none;padding:0;margin:.3em 0;font-size:.88rem}
.swatch{vertical-align:-3px;margin-right:6px}
details{margin:.3em 0}
summary{cursor:pointer;color:var(--accent);font-size:.9rem}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
footer{color:var(--soft);font-size:.85rem;padding-bottom:40px;margin-top:3em}
"""
    + "".join(f".line.c{n}{{stroke:var(--s{n})}}.dot.c{n}{{fill:var(--s{n});stroke:var(--s{n})}}\n" for n in range(7))
    + f"""
@media print{{
:root{{color-scheme:light;{_LIGHT}}}
body{{font-size:10.5pt;-webkit-print-color-adjust:exact;print-color-adjust:exact}}
header,main,footer{{max-width:none;padding:0}}
nav,.skip,summary{{display:none}}
details::details-content{{content-visibility:visible;display:block;height:auto}}
figure,tr,ol.steps>li,.verdict{{break-inside:avoid}}
h2,h3{{break-after:avoid}}
.scroll{{overflow:visible}}
}}
"""
)
