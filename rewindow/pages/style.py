"""The looks of the gate's pages: plain, light or dark as the reader's system is, no file or host needed."""

from __future__ import annotations

from html import escape

CSS = """
:root{--paper:#fbfaf7;--ink:#1d232b;--soft:#66707c;--line:#dcd9d1;--card:#fff;--ok:#2f7d4f;--warn:#b7791f;--bad:#b8322a;
--none:#c9c6bd;--ok-back:#e4f1e8;--warn-back:#fbefd8;--bad-back:#f9e3e0;--code:#f0eee8}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e6e4de;--soft:#97a1ac;--line:#2d343c;--card:#1b2027;
--ok:#6cc08b;--warn:#e0b15c;--bad:#ee7f76;--none:#414952;--ok-back:#1c2f24;--warn-back:#33291a;--bad-back:#3a201f;--code:#252b33}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}h2{font-size:17px;margin:36px 0 10px}
p{margin:6px 0}a{color:inherit;text-decoration-color:var(--soft);text-underline-offset:3px}
.soft{color:var(--soft)}.num{font-variant-numeric:tabular-nums;text-align:right}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:.88em}
code{background:var(--code);padding:1px 5px;border-radius:4px}
table{border-collapse:collapse;width:100%;background:var(--card);border:1px solid var(--line);border-radius:8px}
th,td{padding:7px 12px;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-size:12px;color:var(--soft);font-weight:600}tr:last-child td{border-bottom:0}
th.num,td.num{text-align:right}.line{white-space:nowrap}
.tag{display:inline-block;border-radius:4px;padding:1px 8px;font-size:12.5px;font-weight:600;white-space:nowrap}
.passed{color:var(--ok);background:var(--ok-back)}.failed{color:var(--bad);background:var(--bad-back)}
.warning{color:var(--warn);background:var(--warn-back)}.nothing{color:var(--soft);background:var(--code)}
.facts{display:flex;flex-wrap:wrap;gap:10px 28px;margin:18px 0 8px;padding:0}
.facts div{min-width:96px}.facts b{display:block;font-size:20px;font-variant-numeric:tabular-nums}
.facts span{font-size:12px;color:var(--soft)}
svg.strip{display:block;width:100%;height:34px;border-radius:4px;background:var(--code)}
.s-ok{fill:var(--ok)}.s-warn{fill:var(--warn)}.s-bad{fill:var(--bad)}.s-none{fill:var(--none)}
.key{display:flex;gap:18px;font-size:12px;color:var(--soft);margin-top:6px;flex-wrap:wrap}
.key i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px;vertical-align:-1px}
.scroll{overflow-x:auto}details{margin-top:36px}summary{cursor:pointer;font-weight:600}
"""

DOCS_CSS = """
.docs .alert{border:0;padding:0;margin:20px 0 4px;background:none}
.docs h5{font-size:15px;margin:0;font-family:ui-monospace,monospace}
.docs h6{margin:0;font-size:13px}.docs .badge{background:var(--code);border-radius:4px;padding:1px 6px;font-size:12.5px}
.docs .text-danger{color:var(--bad)}.docs table{margin:4px 0}
.docs table table{border-radius:0}.docs .collapse{display:block}
.docs i.fa-check-circle::before{content:"passed";font:600 12.5px system-ui;color:var(--ok)}
.docs i.fa-times::before{content:"failed";font:600 12.5px system-ui;color:var(--bad)}
.docs i.fa-exclamation-triangle::before{content:"not run";font:600 12.5px system-ui;color:var(--warn)}
.docs a[data-toggle]{display:none}.docs .btn{display:none}
"""


def html_page(title: str, body: str, css: str = CSS) -> str:
    """Returns a whole page that needs no other file."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{escape(title)}</title><style>{css}</style></head>
<body><main>
{body}
</main></body></html>
"""


def tag(word: str, kind: str) -> str:
    """Returns a word on a coloured ground; kind is passed, failed, warning or nothing."""
    return f'<span class="tag {kind}">{escape(word)}</span>'
