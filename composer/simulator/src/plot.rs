//! Bars as SVG: a group a load, a bar a policy. No more of a plotting library than a report needs.

use std::fmt::Write;

/// One bar: in which group it stands, whose it is, and how high.
pub struct Bar<'a> {
    pub group: String,
    pub series: &'a str,
    pub value: f64,
}

const COLOURS: [&str; 8] = [
    "#9aa5b1", "#52606d", "#7b8794", "#c9a227", "#b8860b", "#5fa8d3", "#d1495b", "#1b7f5c",
];
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 220.0;
const FOOT: f64 = 40.0;
const HEAD: f64 = 30.0;

/// The colour of a series, by its place.
pub fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// A chart of bars, groups in the order in which they come; `series` are in the order of their colours.
pub fn bars(title: &str, unit: &str, series: &[&str], bars: &[Bar<'_>]) -> String {
    let mut groups: Vec<&str> = Vec::new();
    for bar in bars {
        if !groups.contains(&bar.group.as_str()) {
            groups.push(&bar.group);
        }
    }
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{title}\"><text x=\"0\" y=\"16\" class=\"title\">{title} ({unit})</text>\n",
        HEAD + HEIGHT + FOOT
    );
    let step = WIDTH / groups.len().max(1) as f64;
    let thick = step * 0.8 / series.len().max(1) as f64;
    for bar in bars {
        let group = groups.iter().position(|group| *group == bar.group).unwrap_or(0);
        let place = series.iter().position(|name| *name == bar.series).unwrap_or(0);
        let height = if most > 0.0 {
            HEIGHT * bar.value / most
        } else {
            0.0
        };
        let x = step * (group as f64 + 0.1) + thick * place as f64;
        let y = HEAD + HEIGHT - height;
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{}\"><title>{}, {}: {:.3} {unit}</title></rect>",
            thick * 0.9,
            colour(place),
            bar.series,
            bar.group,
            bar.value
        );
    }
    for (place, group) in groups.iter().enumerate() {
        let x = step * (place as f64 + 0.5);
        let y = HEAD + HEIGHT + 16.0;
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" class=\"group\">{group}</text>");
    }
    let _ = writeln!(
        svg,
        "<text x=\"0\" y=\"{}\" class=\"most\">highest: {most:.3} {unit}</text></svg>",
        HEAD + HEIGHT + 34.0
    );
    svg
}
