//! Figures and values in the words of people.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use poolwright_model::units::Bytes;
use serde::Serialize;
use serde_json::Value;

/// `1 GPU`, `2 GPUs`.
pub fn counted(count: usize, noun: &str) -> String {
    match (count, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (n, Some(stem)) => format!("{n} {stem}ies"),
        (n, None) if noun.ends_with("ch") || noun.ends_with("ss") || noun.ends_with('x') => {
            format!("{n} {noun}es")
        }
        (n, None) => format!("{n} {noun}s"),
    }
}

/// `$25,000`.
pub fn dollars(amount: Option<f64>) -> String {
    amount.map_or_else(
        || "-".to_owned(),
        |amount| format!("${}", grouped(amount.round() as u64)),
    )
}

/// `700 W`, `11.2 kW`.
pub fn watts(power: Option<f64>) -> String {
    match power {
        None => "-".to_owned(),
        Some(w) if w >= 10_000.0 => format!("{:.1} kW", w / 1000.0),
        Some(w) => format!("{w:.0} W"),
    }
}

/// How long something took: `0.8 s`, `2 min 5 s`, `3 h 12 min`.
pub fn span(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs_f64().max(0.0);
    let whole = seconds.round() as u64;
    match whole {
        0..60 if seconds < 59.95 => format!("{seconds:.1} s"),
        0..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

/// How long something will take, roughly: `45 s`, `3.5 h`, `12 days`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s if s < 1e6 => format!("{:.1} days", s / 86_400.0),
        s => format!("{} days", grouped((s / 86_400.0).round() as u64)),
    }
}

/// `12,345`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A line as part of a list: indented, and broken between words where the terminal ends, or the page.
pub fn indented(line: &str, width: Option<u16>) -> String {
    const PAGE: u16 = 100;
    broken(line, usize::from(width.unwrap_or(PAGE)), "  ", "      ")
}

/// A sentence broken between words where the terminal ends; on one line where there is none.
pub fn wrapped(line: &str, width: Option<u16>) -> String {
    width.map_or_else(|| line.to_owned(), |width| broken(line, width.into(), "", ""))
}

/// The same as part of a list under a heading of its own.
pub fn under(line: &str, width: Option<u16>) -> String {
    let width = width.map_or(usize::MAX, usize::from);
    broken(line, width, "    ", "      ")
}

/// The same for a continuation of the line above: always indented.
pub fn hung(line: &str, width: Option<u16>) -> String {
    broken(line, width.map_or(usize::MAX, usize::from), "  ", "    ")
}

fn broken(line: &str, width: usize, first: &str, further: &str) -> String {
    let (width, line) = (width.max(40), moments_told(line));
    let (mut lines, mut now) = (Vec::new(), first.to_owned());
    for word in line.split(' ') {
        let is_empty = now.trim().is_empty();
        if !is_empty && now.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut now, further.to_owned()));
        } else if !is_empty {
            now.push(' ');
        }
        now.push_str(word);
    }
    lines.push(now);
    lines.join("\n")
}

/// A timestamp in this machine's time zone, which it names, to the second: the only format for people.
pub fn moment(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system())
        .strftime("%Y-%m-%d %H:%M:%S %Z")
        .to_string()
}

/// The same without seconds and zone.
pub fn minute(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system())
        .strftime("%Y-%m-%d %H:%M")
        .to_string()
}

/// Stands within a moment in a text in place of a blank, so that no line is broken there.
const WHOLE: &str = "\u{a0}";

/// A text that is broken into lines, with plain blanks.
pub fn broken_into_lines(text: &str) -> String {
    text.replace(WHOLE, " ")
}

/// Replaces each timestamp in program format (`2026-11-26T09:48:39.4Z`) by the format for people. A value after an
/// option or `such as` is to be typed, and stays; so does a part of a name.
pub fn moments_told(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut is_value = false;
    for piece in text.split_inclusive([' ', '\n']) {
        let word = piece.trim_matches(|c: char| " \n.,;:()\"'".contains(c));
        let at = word
            .parse::<Timestamp>()
            .ok()
            .filter(|_| word.ends_with('Z') && !is_value);
        match at {
            Some(at) => told.push_str(&piece.replace(word, &moment(at).replace(' ', WHOLE))),
            None => told.push_str(piece),
        }
        is_value = word.starts_with("--") || word == "as";
    }
    told
}

/// A value as an outline: a member a line, what belongs to it indented under it.
pub fn outline(value: &impl Serialize) -> String {
    let mut text = String::new();
    match serde_json::to_value(value) {
        Ok(value) => members(&mut text, &value, 0),
        Err(error) => text = format!("can't be shown: {error}"),
    }
    text
}

/// A value as pairs of a name (`reads.units`) and the value as it is, for programs.
pub fn pairs(value: &impl Serialize) -> Vec<(String, String)> {
    fn walk(found: &mut Vec<(String, String)>, name: &str, value: &Value) {
        let inner = |key: &str| {
            if name.is_empty() {
                key.to_owned()
            } else {
                format!("{name}.{key}")
            }
        };
        match value {
            Value::Object(map) => map
                .iter()
                .for_each(|(key, value)| walk(found, &inner(key), value)),
            Value::Array(list) if !list.iter().all(is_plain) => {
                list.iter()
                    .enumerate()
                    .for_each(|(index, value)| walk(found, &inner(&index.to_string()), value));
            }
            plain => found.push((name.to_owned(), raw(plain))),
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::to_value(value) {
        walk(&mut found, "", &value);
    }
    found
}

fn members(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let name = name.replace('_', " ");
                if is_plain(value) || is_short_list(value) {
                    text.push_str(&format!("{indent}{name}: {}\n", shown(&name, value)));
                } else {
                    text.push_str(&format!("{indent}{name}:\n"));
                    members(text, value, depth + 1);
                }
            }
        }
        Value::Array(list) => {
            for item in list {
                if is_plain(item) {
                    text.push_str(&format!("{indent}- {}\n", text_of(item)));
                } else {
                    let mut inner = String::new();
                    members(&mut inner, item, depth + 1);
                    // The dash stands in the indentation of the first line.
                    let first = indent.len();
                    inner.replace_range(first..first + 1, "-");
                    text.push_str(&inner);
                }
            }
        }
        plain => text.push_str(&format!("{indent}{}\n", text_of(plain))),
    }
}

fn is_plain(value: &Value) -> bool {
    !matches!(value, Value::Object(map) if !map.is_empty())
        && !matches!(value, Value::Array(list) if !list.is_empty())
}

/// A list of words that fits on a line.
fn is_short_list(value: &Value) -> bool {
    let Value::Array(list) = value else { return false };
    list.iter().all(is_plain) && list.iter().map(|item| text_of(item).len() + 2).sum::<usize>() <= 72
}

fn shown(name: &str, value: &Value) -> String {
    let is_memory = name.ends_with("bytes") || name.ends_with("memory per gpu");
    match (is_memory, value.as_u64()) {
        (true, Some(bytes)) => Bytes(bytes).to_string(),
        _ => text_of(value),
    }
}

fn raw(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(raw).collect::<Vec<_>>().join(" "),
        Value::Object(_) => String::new(),
        plain => plain.to_string(),
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => broken_into_lines(&moments_told(text)),
        Value::Number(number) => number.to_string(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Array(list) => list.iter().map(text_of).collect::<Vec<_>>().join(", "),
        Value::Object(_) => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(counted(1, "GPU"), "1 GPU");
        assert_eq!(counted(3, "switch"), "3 switches");
        assert_eq!(counted(2, "GPU box"), "2 GPU boxes");
        assert_eq!(counted(0, "retry"), "0 retries");
        assert_eq!(dollars(Some(390_000.0)), "$390,000");
        assert_eq!(watts(Some(11_200.0)), "11.2 kW");
        assert_eq!(watts(None), "-");
        let after = |seconds: f64| {
            let span_of = jiff::SignedDuration::from_secs_f64(seconds);
            span(Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH + span_of)
        };
        assert_eq!(after(0.84), "0.8 s");
        assert_eq!(after(125.0), "2 min 5 s");
        assert_eq!(after(11_520.0), "3 h 12 min");
        let rough = [45.0, 600.0, 12_600.0, 200_000.0, 1e9].map(duration);
        assert_eq!(rough, ["45 s", "10 min", "3.5 h", "2.3 days", "11,574 days"]);
    }

    #[test]
    fn a_line_is_broken_between_words_where_the_terminal_ends() {
        let line = "weights 15.22 GiB (safe 15.68): 2 B x 6,979,588,096 + 2 B x 1,050,673,152 of embeddings";
        assert_eq!(indented(line, None), format!("  {line}"));
        assert_eq!(indented(&format!("{line} {line}"), None).lines().count(), 2);
        let broken = indented(line, Some(60));
        assert!(broken.lines().count() == 2, "{broken}");
        for line in broken.lines() {
            assert!(line.chars().count() <= 60 && line.starts_with("  "), "{line:?}");
        }
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&broken), words(line));
    }

    #[test]
    fn a_moment_in_a_text_is_told_as_all_are() {
        let told =
            moments_told("runs, until 2026-11-26T09:48:39.442404869Z at most (since 2026-11-26T02:48:39Z)");
        let [until, since] = [1_795_686_519, 1_795_661_319].map(|second| {
            let at = Timestamp::from_second(second).unwrap();
            moment(at)
        });
        assert_eq!(
            broken_into_lines(&told),
            format!("runs, until {until} at most (since {since})")
        );
        for same in [
            "a text\nof lines, 2026-11-26, 12Z",
            "saved in pool-2026-11-26T02:48:39Z.tar",
            "go on: poolwright schedule next --from 2026-11-26T02:48:39Z",
            "allowed: a moment, such as 2026-11-26T02:48:39Z",
            "",
        ] {
            assert_eq!(moments_told(same), same);
        }
        // No line ends within one.
        let lines = broken(&told, 40, "", "");
        assert!(
            broken_into_lines(&lines)
                .lines()
                .any(|line| line.contains(&until)),
            "{lines}"
        );
    }

    #[test]
    fn an_outline_shows_every_member() {
        let value = json!({
            "id": "gpu-1", "memory_bytes": 85_899_345_920_u64, "min_memory_per_gpu": 1024, "why_not": null,
            "functions": [{"number": 0, "class": "030200"}, {"number": 1, "class": null}],
            "seen_by": ["box-1", "host-1-bmc"],
        });
        let expected = "\
id: gpu-1
memory bytes: 80.0 GiB
min memory per gpu: 1.0 KiB
why not: -
functions:
  - number: 0
    class: 030200
  - number: 1
    class: -
seen by: box-1, host-1-bmc
";
        assert_eq!(outline(&value), expected);
    }

    #[test]
    fn pairs_name_the_way_to_each_value() {
        let pairs = pairs(
            &json!({"a": {"b": 1, "c": ["x", "y"]}, "d": [{"e": true}], "memory_bytes": 1024, "f": null}),
        );
        let expected = [
            ("a.b", "1"),
            ("a.c", "x y"),
            ("d.0.e", "true"),
            ("memory_bytes", "1024"),
            ("f", ""),
        ];
        assert_eq!(
            pairs,
            expected.map(|(name, text)| (name.to_owned(), text.to_owned()))
        );
    }
}
