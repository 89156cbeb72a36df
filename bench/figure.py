"""Memory over time, one line for each rival, as an SVG that is legible on light and dark grounds."""

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 300, 56, 40, 16, 40
COLOURS = ["#0b7a75", "#c8553d", "#7b5ea7", "#b08900"]


def draw(path, lines):
    """lines: name -> [(seconds, bytes), ...]."""
    end = max(point[0] for line in lines.values() for point in line) or 1
    top = max(max(point[1] for line in lines.values() for point in line), 1) * 1.05
    x = lambda seconds: LEFT + seconds / end * (WIDTH - LEFT - RIGHT)
    y = lambda held: HEIGHT - BOTTOM - max(held, 0) / top * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    step = next(s for s in (50e6, 100e6, 250e6, 500e6, 1e9, 2e9, 5e9) if top / s <= 6)
    for i in range(int(top / step) + 1):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(i * step):.1f}" y2="{y(i * step):.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(i * step) + 4:.1f}" text-anchor="end" fill="#333333">{i * step / 1e9:g}</text>')
    for i in range(int(end) + 1):
        out.append(f'<text x="{x(i):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#333333">{i}</text>')
    out.append(f'<text x="{LEFT}" y="16" fill="#333333">GB beyond the loaded model</text>')
    out.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end" fill="#333333">seconds</text>')
    for i, (name, line) in enumerate(lines.items()):
        points = " ".join(f"{x(seconds):.1f},{y(held):.1f}" for seconds, held in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[i]}" stroke-width="2"/>')
        at = LEFT + 10 + i * 220
        out.append(f'<line x1="{at}" x2="{at + 20}" y1="30" y2="30" stroke="{COLOURS[i]}" stroke-width="3"/>')
        out.append(f'<text x="{at + 26}" y="34" fill="#333333">{name}</text>')
    with open(path, "w") as file:
        file.write("\n".join([*out, "</svg>", ""]))
