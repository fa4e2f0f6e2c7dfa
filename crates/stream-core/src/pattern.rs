//! [`NamePattern`]: which names a maintenance policy is meant for.
//!
//! A policy that can lose data or destroy a group names what it is for; a pattern that matches more than it says would be
//! that loss. So there are two wildcards and nothing else to know: `*` for any bytes, `?` for one.

use std::fmt;

/// A pattern over the bytes of a name: `*` stands for any number of bytes, `?` for exactly one, `\` takes the next byte
/// as it is. Everything must match, from the first byte to the last.
///
/// ```
/// use stream_core::NamePattern;
/// let pattern = NamePattern::new("ephemeral-*")?;
/// assert!(pattern.matches("ephemeral-7"));
/// assert!(!pattern.matches("my-ephemeral-7"));
/// # Ok::<(), stream_core::PatternError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct NamePattern {
    text: Vec<u8>,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Byte(u8),
    One,
    Any,
}

/// A text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It is empty and would match no name at all.
    #[error("the name pattern is empty: write `*` if every name is meant")]
    Empty,
    /// It ends with a `\` that has nothing to take as it is.
    #[error("the name pattern ends with a lone `\\`: write `\\\\` for the character itself")]
    LoneEscape,
}

impl NamePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PatternError`] when it is empty or ends with a lone `\`.
    pub fn new(text: impl AsRef<[u8]>) -> Result<Self, PatternError> {
        let text = text.as_ref();
        let mut parts = Vec::with_capacity(text.len());
        let mut bytes = text.iter().copied();
        while let Some(byte) = bytes.next() {
            match byte {
                b'*' if parts.last() == Some(&Part::Any) => {}
                b'*' => parts.push(Part::Any),
                b'?' => parts.push(Part::One),
                b'\\' => parts.push(Part::Byte(bytes.next().ok_or(PatternError::LoneEscape)?)),
                byte => parts.push(Part::Byte(byte)),
            }
        }
        if parts.is_empty() { Err(PatternError::Empty) } else { Ok(Self { text: text.to_vec(), parts }) }
    }

    /// Whether the whole of `name` matches. Takes at most the product of both lengths in steps, whatever the pattern.
    pub fn matches(&self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        let (mut at, mut part) = (0, 0);
        // Where the last `*` stood, and how far the name went into it: on a mismatch it takes one byte more.
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    star = Some((part, at));
                    part += 1;
                }
                Some(Part::One) => (at, part) = (at + 1, part + 1),
                Some(Part::Byte(byte)) if *byte == name[at] => (at, part) = (at + 1, part + 1),
                _ => match star {
                    Some((any, taken)) => {
                        star = Some((any, taken + 1));
                        (at, part) = (taken + 1, any + 1);
                    }
                    None => return false,
                },
            }
        }
        self.parts[part..].iter().all(|part| *part == Part::Any)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let pattern = NamePattern::new(pattern).unwrap();
        for name in matching {
            assert!(pattern.matches(name), "{pattern} matches {name:?}");
        }
        for name in others {
            assert!(!pattern.matches(name), "{pattern} does not match {name:?}");
        }
    }

    #[test]
    fn wildcards_mean_what_they_say() {
        check("group", &["group"], &["group2", "Group", "", "grou"]);
        check("ephemeral-*", &["ephemeral-", "ephemeral-1"], &["ephemeral", "an-ephemeral-1"]);
        check("*-a-*", &["x-a-y", "-a-a-", "x-b-a-c"], &["x-a", "a"]);
        check("g?", &["g1"], &["g", "g12"]);
        check("*", &["", "anything"], &[]);
        check(r"a\*b", &["a*b"], &["axb", r"a\*b"]);
        check("[ab]", &["[ab]"], &["a"]);
    }

    #[test]
    fn what_is_not_a_pattern_is_refused() {
        assert_eq!(NamePattern::new(""), Err(PatternError::Empty));
        assert_eq!(NamePattern::new(r"a\"), Err(PatternError::LoneEscape));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = NamePattern::new("*a".repeat(50)).unwrap();
        assert!(!pattern.matches("a".repeat(10_000) + "b"));
    }

    /// The meaning written down as plainly as possible, for short inputs.
    fn plainly(parts: &[Part], name: &[u8]) -> bool {
        match (parts, name) {
            ([], name) => name.is_empty(),
            ([Part::Any, rest @ ..], name) => (0..=name.len()).any(|taken| plainly(rest, &name[taken..])),
            ([Part::One, rest @ ..], [_, name @ ..]) => plainly(rest, name),
            ([Part::Byte(byte), rest @ ..], [first, name @ ..]) => byte == first && plainly(rest, name),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_plain_meaning(pattern in r"[ab*?\\]{1,8}", name in "[ab*?]{0,10}") {
            if let Ok(pattern) = NamePattern::new(&pattern) {
                prop_assert_eq!(pattern.matches(&name), plainly(&pattern.parts, name.as_bytes()));
            }
        }
    }
}
