"""Draws curves over time as SVG, with nothing but the standard library."""

import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 300, 60, 20, 40, 50
COLORS = ["#1f5fa8", "#c2571a", "#4a8f3c", "#7b4fa3"]


def curves(path, title, series, across="seconds", up="Mbit/s", marks=()):
    """`series`: name -> [(x, y)]; `marks`: (from, to, what) are shaded, with `to` equal to `from` a line."""
    points = [point for line in series.values() for point in line]
    x_max = max([x for x, _ in points] + [1e-9])
    y_max = nice(max([y for _, y in points] + [1e-9]))
    def at(x, y):
        return (LEFT + x / x_max * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="18" font-size="14">{html.escape(title)}</text>']
    for begin, end, what in marks:
        (x0, y0), (x1, y1) = at(begin, y_max), at(max(begin, end), 0)
        out.append(f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{max(x1 - x0, 1):.1f}" height="{y1 - y0:.1f}" fill="#d33" opacity="0.18"/>')
        out.append(f'<text x="{x0 + 2:.1f}" y="{y0 - 4:.1f}" fill="#a22" font-size="11">{html.escape(what)}</text>')
    for i in range(5):
        y = y_max * i / 4
        (x0, v), (x1, _) = at(0, y), at(x_max, y)
        out.append(f'<path d="M{x0:.1f} {v:.1f}H{x1:.1f}" stroke="#ddd"/><text x="{LEFT - 6}" y="{v + 4:.1f}" text-anchor="end">{y:g}</text>')
    step = nice(x_max / 8)
    for i in range(int(x_max / step) + 1):
        h, v = at(i * step, 0)
        out.append(f'<path d="M{h:.1f} {v:.1f}v4" stroke="black"/><text x="{h:.1f}" y="{v + 18:.1f}" text-anchor="middle">{i * step:g}</text>')
    for nth, (name, line) in enumerate(series.items()):
        color = COLORS[nth % len(COLORS)]
        steps = " ".join(f"{h:.1f},{v:.1f}" for h, v in (at(x, y) for x, y in line))
        out.append(f'<polyline points="{steps}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        out.append(f'<text x="{WIDTH - RIGHT - 6}" y="{TOP + 14 + 15 * nth}" fill="{color}" text-anchor="end">{html.escape(name)}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{html.escape(across)}</text>')
    out.append(f'<text x="16" y="{HEIGHT / 2}" transform="rotate(-90 16 {HEIGHT / 2})" text-anchor="middle">{html.escape(up)}</text></svg>')
    path.write_text("\n".join(out) + "\n")


def table(path, series, across="seconds", up="Mbit/s"):
    """The same as text: one point a line."""
    with open(path, "w") as file:
        file.write(f"series\t{across}\t{up}\n")
        for name, line in series.items():
            for x, y in line:
                file.write(f"{name}\t{x:.2f}\t{y:.2f}\n")


def nice(most):
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(most))
    return next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= most * 0.999)
