//! Approximate trimming removes whole nodes only, so the model must know where nodes end: up to 100 entries or 4096
//! bytes, deleted entries included.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use stream_testkit::{MemoryServer, matrix};

use super::compare::show;
use super::{Pair, request};

/// Sequences per server unless told otherwise.
const CASES: u32 = 64;

#[derive(Debug, Clone)]
enum Step {
    /// That many entries with values of that size.
    Add { entries: u64, size: usize, fields: usize },
    /// Deletes the entry at that place of the ids given so far, in thousandths.
    Delete(u64),
    /// `XTRIM`; the threshold is a place, in thousandths.
    Trim { by_id: bool, at: u64, approximate: bool, limit: Option<u64> },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![3 => 0..40usize, 1 => 60..70usize, 1 => 100..1500usize, 1 => 4000..4200usize];
    let add = (1..250u64, size, 1..3usize).prop_map(|(entries, size, fields)| Step::Add { entries, size, fields });
    let limit = prop_oneof![3 => Just(None), 1 => (0..300u64).prop_map(Some)];
    let trim =
        (any::<bool>(), 0..1000u64, prop::bool::weighted(0.8), limit).prop_map(|(by_id, at, approximate, limit)| {
            Step::Trim { by_id, at, approximate, limit: limit.filter(|_| approximate) }
        });
    let step = prop_oneof![3 => add, 3 => (0..1000u64).prop_map(Step::Delete), 3 => trim];
    prop::collection::vec(step, 3..20)
}

fn compile(steps: &[Step], key: &str) -> Vec<Vec<Vec<u8>>> {
    let mut added = 0;
    let mut commands = Vec::new();
    for step in steps {
        let mut push = |text: String| commands.push(text.split(' ').map(|arg| arg.as_bytes().to_vec()).collect());
        match step {
            Step::Add { entries, size, fields } => {
                for number in added..added + entries {
                    // Numbers, texts and names that change now and then are packed differently.
                    let name = if number % 37 == 0 { "other" } else { "name" };
                    let value = if number % 3 == 0 { number.to_string() } else { "x".repeat(*size) };
                    let pairs = vec![format!("{name} {value}"); *fields].join(" ");
                    push(format!("XADD {key} {}-{} {pairs}", 1_700_000_000_000 + number / 5 * 100, number % 5 + 1));
                }
                added += entries;
            }
            Step::Delete(at) => push(format!("XDEL {key} {}", id(at * added / 1000))),
            Step::Trim { by_id, at, approximate, limit } => {
                let at = at * added / 1000;
                let threshold = if *by_id {
                    format!("MINID{} {}", tilde(*approximate), id(at))
                } else {
                    format!("MAXLEN{} {at}", tilde(*approximate))
                };
                let limit = limit.map_or(String::new(), |limit| format!(" LIMIT {limit}"));
                push(format!("XTRIM {key} {threshold}{limit}"));
            }
        }
        push(format!("XLEN {key}"));
    }
    commands
}

fn id(number: u64) -> String {
    format!("{}-{}", 1_700_000_000_000 + number / 5 * 100, number % 5 + 1)
}

fn tilde(approximate: bool) -> &'static str {
    if approximate { " ~" } else { "" }
}

#[test]
fn approximate_trimming_stops_where_nodes_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    for binary in matrix::all() {
        let pair = runtime.block_on(Pair::start(&binary));
        let key = pair.real.fresh_key("s");
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let trimmed = Cell::new(0);
        let result = TestRunner::new_with_rng(config, rng).run(&steps(), |steps| {
            let commands = compile(&steps, &key);
            let requests: Vec<_> = commands.iter().map(|args| request(args)).collect();
            let (expected, actual) = runtime.block_on(async {
                let model = MemoryServer::with_profile(pair.profile);
                let real = pair.connect_real().await;
                real.send(&[stream_redis::Request::new("DEL").arg(&key)]).await.expect("the key can be deleted");
                let expected = real.send(&requests).await.expect("the real server answers");
                (expected, pair.connect_model(&model).await.send(&requests).await.expect("the model answers"))
            });
            for (index, (expected, actual)) in expected.into_iter().zip(actual).enumerate() {
                let is_trim = commands[index][0] == b"XTRIM";
                trimmed.set(
                    trimmed.get() + i64::from(is_trim && expected.as_ref().is_ok_and(|value| value.as_int() > Some(0))),
                );
                let command: String = show(&commands[index]).chars().take(100).collect();
                prop_assert_eq!(expected, actual, "{} at {} of {:?}", command, index, steps);
            }
            Ok(())
        });
        println!("{}: {} commands trimmed something", pair.real.name(), trimmed.get());
        if let Err(error) = result {
            panic!("{}: {error}", pair.real.name());
        }
        assert!(trimmed.get() > 0, "the sequences trim something");
    }
}
