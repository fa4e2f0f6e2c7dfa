//! Prefect's and `FastStream`'s real packages on the other side of a stream: what they publish is handled here and the
//! other way round, and workers of both kinds share a group.

mod faststream;
mod prefect;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stream_testkit::{RealServer, ServerOptions, matrix};
use streamkeeper::{Consumer, DurableBuilder};
use streamkeeper_tests::Ask;

/// A message as both sides write it down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    /// In hexadecimal.
    body: String,
    headers: BTreeMap<String, Value>,
}

impl Line {
    fn new(body: &[u8], headers: impl IntoIterator<Item = (String, Value)>) -> Self {
        let mut hex = String::with_capacity(2 * body.len());
        for byte in body {
            write!(hex, "{byte:02x}").unwrap();
        }
        Self { body: hex, headers: headers.into_iter().collect() }
    }

    /// The header that tells messages apart.
    fn number(&self) -> u64 {
        let number = &self.headers["n"];
        number.as_u64().or_else(|| number.as_str()?.parse().ok()).unwrap()
    }
}

/// Messages that were handled here. Clones are the same list.
#[derive(Debug, Clone, Default)]
struct Handled(Arc<Mutex<Vec<Line>>>);

impl Handled {
    fn add(&self, line: Line) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// What a peer has written, as far as the lines are whole.
fn lines(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Compares messages without printing a megabyte where two differ.
#[track_caller]
fn assert_same(found: &[Line], expected: &[Line]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.headers, expected.headers);
        assert!(found.body == expected.body, "message {} has another body", expected.number());
    }
}

fn numbers<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeSet<u64> {
    lines.into_iter().map(Line::number).collect()
}

/// The newest server: on the wire these formats are fields like any others, and those are tried on all.
async fn server() -> RealServer {
    RealServer::start(&matrix::one(), &ServerOptions::new()).await.unwrap()
}

fn builder(server: &RealServer, key: &str) -> DurableBuilder {
    Consumer::durable(&server.client()).stream(key).group("g").block(Duration::from_secs(1))
}
