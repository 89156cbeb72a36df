"""Lines over time, one for each rival, as an SVG that is legible on light and dark grounds."""

WIDTH, PLOT, ROW, LEFT, RIGHT, BOTTOM = 760, 220, 20, 44, 16, 44
COLOURS = ["#0b7a75", "#c8553d", "#7b5ea7", "#b08900"]


def draw(path, lines, upward, along, peak):
    """lines: name -> [(x, y), ...], a dot at the last point. upward, along: what the axes are. peak: format of a line's highest point."""
    top_of_plot = ROW * (len(lines) + 1) + 18
    height = top_of_plot + PLOT + BOTTOM
    end = max(point[0] for line in lines.values() for point in line) or 1
    top = (max(point[1] for line in lines.values() for point in line) or 1) * 1.05
    x = lambda along: LEFT + along / end * (WIDTH - LEFT - RIGHT)
    y = lambda value: height - BOTTOM - max(value, 0) / top * PLOT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="#333333">',
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    step = next(s for s in (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20) if top / s <= 6)
    for i in range(int(top / step) + 1):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(i * step):.1f}" y2="{y(i * step):.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(i * step) + 4:.1f}" text-anchor="end">{i * step:g}</text>')
    for i in range(int(end) + 1):
        out.append(f'<text x="{x(i):.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{i}</text>')
    out.append(f'<text x="{LEFT}" y="{top_of_plot - 10}">{upward}</text>')
    out.append(f'<text x="{WIDTH - RIGHT}" y="{height - 8}" text-anchor="end">{along}</text>')
    drawn = list(zip(lines.items(), COLOURS))
    for i, ((name, line), colour) in enumerate(drawn):
        out.append(f'<line x1="{LEFT}" x2="{LEFT + 22}" y1="{ROW * (i + 1) - 4}" y2="{ROW * (i + 1) - 4}" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{LEFT + 30}" y="{ROW * (i + 1)}">{name}: at most {peak.format(max(point[1] for point in line))}</text>')
    for (_, line), colour in drawn[::-1]:  # the first rival on top
        points = " ".join(f"{x(along):.1f},{y(value):.1f}" for along, value in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<circle cx="{x(line[-1][0]):.1f}" cy="{y(line[-1][1]):.1f}" r="4" fill="{colour}"/>')
    with open(path, "w") as file:
        file.write("\n".join([*out, "</svg>", ""]))
