//! Pictures as SVG, written by hand: bars and lines are all there is to draw, and a text file needs no font and no library.

use std::fmt::Write;

/// One bar.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// What stands behind it.
    pub(crate) text: String,
    pub(crate) is_floor: bool,
}

/// One line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 860.0;
const BAR: f64 = 20.0;
/// Room for labels at the left, and for figures at the right.
const LEFT: f64 = 260.0;
const RIGHT: f64 = 80.0;
const TOP: f64 = 44.0;
const COLOURS: [&str; 8] = ["#8a8f98", "#1f6feb", "#d1622b", "#2da44e", "#8250df", "#bf3989", "#9a6700", "#1b7c83"];

/// Horizontal bars, each with its label and figure; `None` without any.
pub(crate) fn bars(title: &str, bars: &[Bar]) -> Option<String> {
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let mut out = begin(title, TOP + bars.len() as f64 * (BAR + 4.0) + 12.0);
    for (place, bar) in bars.iter().enumerate() {
        let y = TOP + place as f64 * (BAR + 4.0);
        let width = (bar.value / most * (WIDTH - LEFT - RIGHT)).max(1.0);
        let colour = if bar.is_floor { COLOURS[0] } else { COLOURS[1] };
        text(&mut out, LEFT - 8.0, y + 15.0, "end", &bar.label);
        let _ = writeln!(out, r#"<rect x="{LEFT}" y="{y:.1}" width="{width:.1}" height="{BAR}" fill="{colour}"/>"#);
        text(&mut out, LEFT + width + 6.0, y + 15.0, "start", &bar.text);
    }
    Some(out + "</svg>\n")
}

/// Lines over common axes, `ticks` on the horizontal one; with `logarithmic` the vertical one goes by powers of ten.
/// `None` without any.
pub(crate) fn lines(title: &str, lines: &[Line], ticks: &[(f64, &str)], logarithmic: bool) -> Option<String> {
    const HEIGHT: f64 = 420.0;
    const AXIS: f64 = 70.0;
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = points().map(|point| point.0).chain(ticks.iter().map(|tick| tick.0)).fold(0.0, f64::max);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    if right <= 0.0 || most <= 0.0 {
        return None;
    }
    let scale = |value: f64| if logarithmic { value.max(1.0).log10() } else { value };
    let (low, high) = if logarithmic { (0.0, scale(most).ceil().max(1.0)) } else { (0.0, most * 1.1) };
    let bottom = HEIGHT - 36.0;
    let x = |value: f64| AXIS + value / right * (WIDTH - AXIS - 190.0);
    let y = |value: f64| bottom - (scale(value) - low) / (high - low) * (bottom - TOP);
    let mut out = begin(title, HEIGHT);
    for (at, label) in ticks {
        let x = x(*at);
        let _ = writeln!(out, r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}" stroke="#ddd"/>"##);
        text(&mut out, x, bottom + 18.0, "middle", label);
    }
    for mark in marks(high, logarithmic) {
        let (y, end) = (y(mark), x(right));
        let _ = writeln!(out, r##"<line x1="{AXIS}" y1="{y:.1}" x2="{end:.1}" y2="{y:.1}" stroke="#ddd"/>"##);
        text(&mut out, AXIS - 6.0, y + 4.0, "end", &shown(mark));
    }
    for (place, line) in lines.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let path: Vec<String> =
            line.points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        let path = path.join(" ");
        let _ = writeln!(out, r#"<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>"#);
        let legend = TOP + 10.0 + place as f64 * 20.0;
        let (left, end) = (WIDTH - 170.0, WIDTH - 150.0);
        let _ = writeln!(
            out,
            r#"<line x1="{left}" y1="{legend}" x2="{end}" y2="{legend}" stroke="{colour}" stroke-width="3"/>"#
        );
        text(&mut out, end + 6.0, legend + 4.0, "start", &line.label);
    }
    Some(out + "</svg>\n")
}

/// Where the vertical axis has its figures.
fn marks(high: f64, logarithmic: bool) -> Vec<f64> {
    if logarithmic {
        return (0..=high as i32).map(|power| 10_f64.powi(power)).collect();
    }
    (0..=4).map(|quarter| high * f64::from(quarter) / 4.0).collect()
}

fn shown(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn begin(title: &str, height: f64) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let _ = writeln!(out, r#"<text x="12" y="26" font-size="16" font-weight="bold">{}</text>"#, escaped(title));
    out
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escaped(words));
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_is_as_wide_as_there_is_room() {
        let bar = |value| Bar { label: "a < b".to_owned(), value, text: String::new(), is_floor: false };
        let picture = bars("title", &[bar(2.0), bar(1.0)]).unwrap();
        assert!(picture.contains(r#"width="520.0""#) && picture.contains(r#"width="260.0""#), "{picture}");
        assert!(picture.contains("a &lt; b") && picture.ends_with("</svg>\n"));
        assert_eq!(bars("nothing", &[]), None);
    }

    #[test]
    fn lines_begin_at_the_axis_and_end_at_the_right() {
        let line = Line { label: "own".to_owned(), points: vec![(0.0, 1.0), (4.0, 1000.0)] };
        let picture = lines("title", &[line], &[(0.0, "0"), (4.0, "end")], true).unwrap();
        assert!(picture.contains(r#"points="70.0,384.0 670.0,44.0""#), "{picture}");
    }
}
