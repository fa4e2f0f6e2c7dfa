//! How the text of a variable becomes a value. Every refusal says what to write.

use std::time::Duration;

use stream_core::{EntryId, NamePattern, StartFrom};

pub(super) type Parsed<T> = Result<T, String>;

/// `5` and `5.5` are seconds; `250ms`, `5s`, `2m`, `1h`, `1d` say their unit.
pub(super) fn duration(text: &str) -> Parsed<Duration> {
    let wrong = || format!("`{text}` is not a time: write seconds as in 5, or a unit as in 250ms, 5s, 2m, 1h or 1d");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let nanos_per_unit: u64 = match unit.trim_start() {
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3_600 * 1_000_000_000,
        "d" => 86_400 * 1_000_000_000,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || number.ends_with('.') || fraction.contains('.') {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let fraction: u64 = if fraction.is_empty() { 0 } else { format!("{fraction:0<9}").parse().map_err(|_| wrong())? };
    let nanos = u128::from(whole) * u128::from(nanos_per_unit)
        + u128::from(fraction) * u128::from(nanos_per_unit) / 1_000_000_000;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| wrong())
}

pub(super) fn number<T: std::str::FromStr>(text: &str, range: &str) -> Parsed<T> {
    text.parse().map_err(|_| format!("`{text}` is not a number here: write {range}"))
}

pub(super) fn yes(text: &str) -> Parsed<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" | "t" | "y" => Ok(true),
        "false" | "0" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err(format!("`{text}` is neither yes nor no: write true or false")),
    }
}

/// `0` or `0-0`, `$`, or the id after which to begin.
pub(super) fn start(text: &str) -> Parsed<StartFrom> {
    match text {
        "0" | "0-0" => Ok(StartFrom::Beginning),
        "$" => Ok(StartFrom::End),
        id => EntryId::parse(id.as_bytes()).map(StartFrom::Id).map_err(|_| {
            format!("`{text}` is no id: write 0 for the beginning, $ for the end, or as in 1700000000000-0")
        }),
    }
}

pub(super) fn pattern(text: &str) -> Parsed<NamePattern> {
    NamePattern::new(text).map_err(|error| error.to_string())
}

/// Names with commas between.
pub(super) fn names(text: &str) -> Parsed<Vec<String>> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(format!("`{text}` has an empty name: write names with one comma between"));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_say_their_unit() {
        let check = |text: &str, millis: u64| assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        check("0", 0);
        check("1", 1_000);
        check("60", 60_000);
        check("0.5", 500);
        check("1.25s", 1_250);
        check("250ms", 250);
        check("250 ms", 250);
        check("2m", 120_000);
        check("1.5h", 5_400_000);
        check("1d", 86_400_000);
        for text in
            ["", "s", "-1", "1 2", "1x", "1.", ".5", "1.5.5", "5sec", "1e3", "99999999999999999999", "1.0000000001"]
        {
            assert!(duration(text).unwrap_err().contains("write seconds as in 5"), "{text}");
        }
        assert!(duration("999999999999999d").is_err(), "no overflow");
    }

    #[test]
    fn the_rest_says_what_to_write() {
        assert_eq!((yes("True"), yes("off")), (Ok(true), Ok(false)));
        assert!(yes("maybe").unwrap_err().contains("write true or false"));
        assert_eq!(number::<u32>("7", "1 or more"), Ok(7));
        assert!(number::<u32>("-7", "0 or more").unwrap_err().contains("write 0 or more"));
        assert_eq!((start("0"), start("$")), (Ok(StartFrom::Beginning), Ok(StartFrom::End)));
        assert_eq!(start("5"), Ok(StartFrom::Id(EntryId::new(5, 0))));
        assert_eq!(start("5-3"), Ok(StartFrom::Id(EntryId::new(5, 3))));
        assert!(start("now").unwrap_err().contains("write 0 for the beginning"));
        assert_eq!(names("a, b"), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert!(names("a,,b").is_err());
        assert!(pattern("\\").is_err());
    }
}
