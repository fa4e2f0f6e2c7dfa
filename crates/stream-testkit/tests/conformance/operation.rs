//! Random operations on two streams, two groups and three consumers, and the commands they become.
//!
//! Ids come from a small range, so that operations meet each other's entries; entries are added with explicit ids.

use proptest::prelude::*;
use proptest::sample::select;
use stream_redis::command::Script;

use super::collections::{collections, publishing};

/// Keys that the commands are about.
pub(crate) struct Names {
    pub(crate) keys: [String; 2],
    /// The dead letters, whose ids come from the clock.
    pub(crate) dead: String,
    /// The dead letters that are hashes, as a set.
    pub(crate) set: String,
    /// One of those hashes.
    pub(crate) letter: String,
    /// What says that something was published.
    pub(crate) marker: String,
}

impl Names {
    pub(crate) fn all(&self) -> impl Iterator<Item = &String> {
        self.keys.iter().chain([&self.dead, &self.set, &self.letter, &self.marker])
    }
}

/// Something to do; `key` is an index, an id a number below [`IDS`].
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// Adds an entry whose id is `step` after the last one.
    Add { key: usize, step: u64, fields: usize, trim: Vec<String>, no_mkstream: bool },
    /// A command about one key, which takes the place of `KEY`.
    Command { key: usize, args: Vec<String> },
}

/// Ids that operations talk about: `1-0` to `8-2`.
const IDS: u64 = 24;
/// The one script that is not about a consumer.
const DESTROY: &str = "destroy_group 1 KEY";
const FIELDS: [&str; 6] = ["f", "v", "n", "17", "long-name", "a value that is a bit longer"];

/// What is left out because servers of one generation differ in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bounds the counters given with `ENTRIESREAD`: Redis 8.6 caps those that the stream cannot have reached.
    pub(crate) max_read: i64,
    /// `XREAD` with the id `+`: Valkey 8.1 answers an empty stream with an error of its own.
    pub(crate) plus: bool,
}

pub(crate) fn operations(bounds: Bounds) -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(bounds), 5..60)
}

/// The commands of a sequence, with a look at everything at the end.
pub(crate) fn compile(operations: &[Operation], names: &Names) -> Vec<Vec<Vec<u8>>> {
    let mut last = [0, 0];
    let mut commands: Vec<Vec<String>> =
        operations.iter().map(|operation| command(operation, names, &mut last)).collect();
    for (command, key) in [
        ("XLEN", &names.dead),
        ("SSCAN", &names.set),
        ("SCARD", &names.set),
        ("HGETALL", &names.letter),
        ("TYPE", &names.marker),
        ("GET", &names.marker),
    ] {
        let cursor = (command == "SSCAN").then(|| "0".to_owned());
        commands.push([command.to_owned(), key.clone()].into_iter().chain(cursor).collect());
    }
    for key in &names.keys {
        let mut look = |args: &str| commands.push(args.split(' ').map(|arg| arg.replace("KEY", key)).collect());
        look("XINFO STREAM KEY");
        look("XINFO GROUPS KEY");
        look("XRANGE KEY - +");
        for group in ["g", "h"] {
            look(&format!("XPENDING KEY {group}"));
            look(&format!("XPENDING KEY {group} - + 1000"));
            look(&format!("XINFO CONSUMERS KEY {group}"));
        }
    }
    commands.into_iter().map(|args| args.into_iter().map(String::into_bytes).collect()).collect()
}

fn command(operation: &Operation, names: &Names, last: &mut [u64; 2]) -> Vec<String> {
    match operation {
        Operation::Add { key, step, fields, trim, no_mkstream } => {
            last[*key] += step;
            let mut args = vec!["XADD".to_owned(), names.keys[*key].clone()];
            args.extend(no_mkstream.then(|| "NOMKSTREAM".to_owned()));
            args.extend(trim.iter().cloned());
            args.push(id(last[*key]));
            args.extend(FIELDS.iter().cycle().take(2 * fields).map(|&field| field.to_owned()));
            args
        }
        Operation::Command { key, args } => {
            let other = 1 - key;
            let replace = |arg: &String| match arg.as_str() {
                "KEY" => names.keys[*key].clone(),
                "OTHER" => names.keys[other].clone(),
                "DEAD" => names.dead.clone(),
                "DLQ" => names.set.clone(),
                "LETTER" => names.letter.clone(),
                "MARKER" => names.marker.clone(),
                arg => script(arg).unwrap_or_else(|| arg.to_owned()),
            };
            args.iter().map(replace).collect()
        }
    }
}

/// The source for `SOURCE:name`, the hash for `HASH:name`.
fn script(arg: &str) -> Option<String> {
    let (what, name) = arg.split_once(':')?;
    let script = Script::all().iter().find(|script| script.name() == name)?;
    Some(if what == "HASH" { script.sha() } else { script.source() }.to_owned())
}

fn id(number: u64) -> String {
    format!("{}-{}", number / 3 + 1, number % 3)
}

fn operation(bounds: Bounds) -> impl Strategy<Value = Operation> {
    let add = (0..2usize, 0..3u64, 1..3usize, trim(), prop::bool::weighted(0.1));
    let add =
        add.prop_map(|(key, step, fields, trim, no_mkstream)| Operation::Add { key, step, fields, trim, no_mkstream });
    let command = (0..2usize, args(bounds)).prop_map(|(key, args)| Operation::Command { key, args });
    prop_oneof![2 => add, 7 => command]
}

fn args(bounds: Bounds) -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        8 => read_new(),
        3 => read_history(),
        2 => read_tail(bounds.plus),
        4 => (group(), ids()).prop_map(|(group, ids)| words("XACK KEY", [vec![group], ids])),
        4 => claim(),
        4 => autoclaim(),
        3 => pending(),
        2 => ids().prop_map(|ids| words("XDEL KEY", [ids])),
        1 => trim_strategy().prop_map(|trim| words("XTRIM KEY", [trim])),
        4 => group_command(bounds.max_read),
        5 => scripts(),
        4 => collections(),
        3 => publishing(),
        3 => info(),
        2 => range(),
        1 => whole_key(),
        1 => mistake(),
    ]
}

fn group() -> impl Strategy<Value = String> {
    select(vec!["g", "g", "g", "h", "h", "none"]).prop_map(str::to_owned)
}

fn consumer() -> impl Strategy<Value = String> {
    select(vec!["a", "a", "b", "b", "c"]).prop_map(str::to_owned)
}

pub(crate) fn some_id() -> impl Strategy<Value = String> {
    (0..IDS).prop_map(id)
}

fn ids() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(some_id(), 1..4)
}

fn end() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("-".to_owned()), 4 => Just("+".to_owned()), 3 => some_id(),
        2 => some_id().prop_map(|id| format!("({id}")), 1 => (1..8u64).prop_map(|ms| ms.to_string()),
    ]
}

fn count() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![Just(vec![]), (0..5u64).prop_map(|count| vec!["COUNT".to_owned(), count.to_string()])]
}

fn flag(word: &'static str) -> impl Strategy<Value = Vec<String>> {
    prop_oneof![Just(vec![]), Just(vec![word.to_owned()])]
}

fn min_idle() -> impl Strategy<Value = String> {
    select(vec!["0", "0", "0", "1800000"]).prop_map(str::to_owned)
}

fn trim() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![9 => Just(vec![]), 1 => trim_strategy()]
}

fn trim_strategy() -> impl Strategy<Value = Vec<String>> {
    let threshold =
        prop_oneof![(0..6u64).prop_map(|max| ("MAXLEN", max.to_string())), some_id().prop_map(|id| ("MINID", id)),];
    (threshold, select(vec!["", "=", "~"]), prop::bool::weighted(0.2)).prop_map(|((name, value), exactness, limit)| {
        let mut args = vec![name.to_owned()];
        args.extend((!exactness.is_empty()).then(|| exactness.to_owned()));
        args.push(value);
        args.extend(limit.then_some(["LIMIT", "2"]).into_iter().flatten().map(str::to_owned));
        args
    })
}

fn read_new() -> impl Strategy<Value = Vec<String>> {
    (group(), consumer(), count(), flag("NOACK"), prop::bool::weighted(0.1)).prop_map(
        |(group, consumer, count, no_ack, both)| {
            let streams = if both { "STREAMS KEY OTHER > >" } else { "STREAMS KEY >" };
            words("XREADGROUP GROUP", [vec![group, consumer], count, no_ack, split(streams)])
        },
    )
}

fn read_history() -> impl Strategy<Value = Vec<String>> {
    let start = prop_oneof![Just("0".to_owned()), some_id()];
    (group(), consumer(), count(), start, prop::bool::weighted(0.2)).prop_map(
        |(group, consumer, count, start, both)| {
            let streams = if both { format!("STREAMS OTHER KEY > {start}") } else { format!("STREAMS KEY {start}") };
            words("XREADGROUP GROUP", [vec![group, consumer], count, split(&streams)])
        },
    )
}

fn read_tail(plus: bool) -> impl Strategy<Value = Vec<String>> {
    let start =
        prop_oneof![3 => some_id(), 1 => select(vec!["$", "0", if plus { "+" } else { "$" }]).prop_map(str::to_owned)];
    (count(), start.clone(), start, any::<bool>()).prop_map(|(count, start, second, both)| {
        let streams = if both { format!("STREAMS KEY OTHER {start} {second}") } else { format!("STREAMS KEY {start}") };
        words("XREAD", [count, split(&streams)])
    })
}

fn claim() -> impl Strategy<Value = Vec<String>> {
    let option = prop_oneof![
        select(vec!["JUSTID", "FORCE", "IDLE 3600000", "IDLE 0", "TIME 1000", "RETRYCOUNT 0", "RETRYCOUNT 7"])
            .prop_map(split),
        some_id().prop_map(|id| vec!["LASTID".to_owned(), id]),
    ];
    let options = prop::collection::vec(option, 0..3).prop_map(|options| options.concat());
    (group(), consumer(), min_idle(), ids(), options).prop_map(|(group, consumer, min_idle, ids, options)| {
        words("XCLAIM KEY", [vec![group, consumer, min_idle], ids, options])
    })
}

fn autoclaim() -> impl Strategy<Value = Vec<String>> {
    let start = prop_oneof![3 => Just("0".to_owned()), 1 => some_id(), 1 => some_id().prop_map(|id| format!("({id}"))];
    let count = prop_oneof![Just(vec![]), (1..4u64).prop_map(|count| vec!["COUNT".to_owned(), count.to_string()])];
    (group(), consumer(), min_idle(), start, count, flag("JUSTID")).prop_map(
        |(group, consumer, min_idle, start, count, just_id)| {
            words("XAUTOCLAIM KEY", [vec![group, consumer, min_idle, start], count, just_id])
        },
    )
}

fn pending() -> impl Strategy<Value = Vec<String>> {
    let idle = prop_oneof![Just(vec![]), Just(split("IDLE 1800000"))];
    let who = prop_oneof![Just(vec![]), consumer().prop_map(|consumer| vec![consumer])];
    let range = (idle, end(), end(), 0..5u64, who)
        .prop_map(|(idle, start, end, count, who)| [idle, vec![start, end, count.to_string()], who].concat());
    let range = prop_oneof![1 => Just(vec![]), 2 => range];
    (group(), range).prop_map(|(group, range)| words("XPENDING KEY", [vec![group], range]))
}

fn group_command(max_read: i64) -> impl Strategy<Value = Vec<String>> {
    let start = prop_oneof![2 => Just("0".to_owned()), 1 => Just("$".to_owned()), 1 => some_id()];
    let read =
        prop_oneof![3 => Just(vec![]), 1 => (-1..=max_read).prop_map(|number| split(&format!("ENTRIESREAD {number}")))];
    prop_oneof![
        5 => (group(), start.clone(), flag("MKSTREAM"), read.clone())
            .prop_map(|(group, start, mkstream, read)| words("XGROUP CREATE KEY", [vec![group, start], mkstream, read])),
        1 => group().prop_map(|group| words("XGROUP DESTROY KEY", [vec![group]])),
        2 => (group(), start, read).prop_map(|(group, start, read)| words("XGROUP SETID KEY", [vec![group, start], read])),
        1 => (group(), consumer())
            .prop_map(|(group, consumer)| words("XGROUP CREATECONSUMER KEY", [vec![group, consumer]])),
        2 => (group(), consumer()).prop_map(|(group, consumer)| words("XGROUP DELCONSUMER KEY", [vec![group, consumer]])),
    ]
}

fn scripts() -> impl Strategy<Value = Vec<String>> {
    let how = select(vec!["EVALSHA HASH", "EVAL SOURCE"]);
    // The library passes ids in ascending order, each once.
    let ids = prop::collection::btree_set(0..IDS, 0..5).prop_map(|ids| ids.into_iter().map(id).collect::<Vec<_>>());
    let pairs = prop::collection::btree_map(0..IDS, 0..5u64, 0..5).prop_map(|pairs| {
        pairs.into_iter().flat_map(|(number, count)| [id(number), count.to_string()]).collect::<Vec<_>>()
    });
    let letter = (some_id(), select(vec!["0", "1", "100"]))
        .prop_map(|(id, max_len)| [vec![id, max_len.to_owned()], split("f v n 17")].concat());
    let call = prop_oneof![
        2 => ids.clone().prop_map(|ids| ("renew 1 KEY", ids)),
        2 => ids.clone().prop_map(|ids| ("acknowledge 1 KEY", ids)),
        2 => ids.prop_map(|ids| ("acknowledge_delete 1 KEY", ids)),
        2 => pairs.clone().prop_map(|pairs| ("hand_back 1 KEY", [vec!["3600000".to_owned()], pairs].concat())),
        3 => (select(vec!["0", "1"]), pairs)
            .prop_map(|(bodies, pairs)| ("take 1 KEY", [vec![bodies.to_owned()], pairs].concat())),
        2 => letter.prop_map(|args| ("dead_letter 2 KEY DEAD", args)),
        2 => some_id().prop_map(|id| ("dead_letter_hash 3 KEY DLQ LETTER", [vec![id], split("f v n 17")].concat())),
        1 => Just(("dead_letter_hash 3 KEY DEAD DEAD", split("1-0 f v"))),
        2 => select(vec![None, Some("0"), Some("3600000")])
            .prop_map(|idle| ("remove_consumer 1 KEY", idle.into_iter().map(str::to_owned).collect())),
        2 => some_id().prop_map(|id| (DESTROY, vec![id])),
        1 => Just(("dead_letter 2 KEY DEAD", split("1-0 0"))),
    ];
    (how, group(), consumer(), call).prop_map(|(how, group, consumer, (call, rest))| {
        let who = if call == DESTROY { vec![group] } else { vec![group, consumer] };
        words(&format!("{how}:{call}"), [who, rest])
    })
}

fn info() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        1 => Just(split("XINFO STREAM KEY")),
        2 => Just(split("XINFO GROUPS KEY")),
        2 => group().prop_map(|group| words("XINFO CONSUMERS KEY", [vec![group]])),
    ]
}

fn range() -> impl Strategy<Value = Vec<String>> {
    (select(vec!["XRANGE KEY", "XREVRANGE KEY"]), end(), end(), count())
        .prop_map(|(command, start, end, count)| words(command, [vec![start, end], count]))
}

fn whole_key() -> impl Strategy<Value = Vec<String>> {
    select(vec![
        "XLEN KEY",
        "XLEN KEY",
        "EXISTS KEY OTHER",
        "TYPE KEY",
        "DEL KEY",
        "SET KEY text",
        "SET DEAD text",
        "DEL DEAD",
    ])
    .prop_map(split)
}

/// Commands that servers refuse, each in its own words.
fn mistake() -> impl Strategy<Value = Vec<String>> {
    select(vec![
        "NOSUCHCOMMAND KEY a",
        "XADD KEY",
        "XADD KEY 1-1 f",
        "XADD KEY 0-0 f v",
        "XADD KEY x f v",
        "XADD KEY 0-* f v",
        "XADD KEY 7-* f v",
        "XADD KEY MAXLEN 1 MINID 1 * f v",
        "XADD KEY LIMIT 1 * f v",
        "XADD KEY MAXLEN -1 * f v",
        "XTRIM KEY",
        "XTRIM KEY MAXLEN",
        "XTRIM KEY MAXLEN 1 LIMIT 1",
        "XTRIM KEY MAXLEN x",
        "XTRIM KEY NOPE 1",
        "XACK KEY g x",
        "XACK KEY none x",
        "XDEL KEY x",
        "XRANGE KEY x y",
        "XRANGE KEY ( +",
        "XRANGE KEY (- +",
        "XRANGE KEY - + COUNT",
        "XRANGE KEY - + COUNT x",
        "XRANGE KEY (18446744073709551615-18446744073709551615 +",
        "XREVRANGE KEY (0-0 -",
        "XRANGE KEY 18446744073709551616 +",
        "XREADGROUP GROUP g a STREAMS KEY $",
        "XREADGROUP GROUP g a STREAMS KEY x",
        "XREADGROUP GROUP g a STREAMS KEY +",
        "XREADGROUP GROUP g a STREAMS KEY -",
        "XREADGROUP GROUP g a STREAMS KEY OTHER >",
        "XREADGROUP GROUP g a COUNT x STREAMS KEY >",
        "XREADGROUP GROUP g a BLOCK -1 STREAMS KEY >",
        "XREADGROUP GROUP g a BLOCK x STREAMS KEY >",
        "XREADGROUP COUNT 1 COUNT 1 STREAMS KEY >",
        "XREADGROUP GROUP g a NOPE STREAMS KEY >",
        "XREADGROUP GROUP g a",
        "XREAD STREAMS KEY >",
        "XREAD STREAMS KEY OTHER 0",
        "XREAD NOACK STREAMS KEY 0",
        "XREAD GROUP g a STREAMS KEY 0",
        "XREAD COUNT 1",
        "XPENDING KEY",
        "XPENDING KEY g -",
        "XPENDING KEY g - + x",
        "XPENDING KEY g IDLE 1 - +",
        "XPENDING KEY g IDLE x - + 1",
        "XCLAIM KEY g a x 1-0",
        "XCLAIM KEY g a 0 x",
        "XCLAIM KEY g a 0 1-0 NOPE",
        "XCLAIM KEY g a 0 1-0 IDLE",
        "XCLAIM KEY g a 0 1-0 IDLE x",
        "XCLAIM KEY g a 0 1-0 RETRYCOUNT x",
        "XAUTOCLAIM KEY g a x 0",
        "XAUTOCLAIM KEY g a 0 x",
        "XAUTOCLAIM KEY g a 0 0 COUNT 0",
        "XAUTOCLAIM KEY g a 0 0 COUNT x",
        "XAUTOCLAIM KEY g a 0 0 NOPE",
        "XGROUP CREATE KEY g",
        "XGROUP CREATE KEY g x",
        "XGROUP CREATE KEY g 0 NOPE",
        "XGROUP CREATE KEY g 0 MKSTREAM NOPE",
        "XGROUP CREATE KEY g 0 ENTRIESREAD -2",
        "XGROUP CREATE KEY g 0 ENTRIESREAD x",
        "XGROUP SETID KEY g",
        "XGROUP SETID KEY g x",
        "XGROUP SETID KEY g -",
        "XGROUP DESTROY KEY",
        "XGROUP NOPE KEY g",
        "XGROUP DELCONSUMER KEY g",
        "XGROUP CREATECONSUMER KEY g a b",
        "XINFO NOPE KEY",
        "XINFO CONSUMERS KEY",
        "XINFO GROUPS KEY g",
        "XLEN",
        "GET KEY",
        "TYPE",
        "EVALSHA 0000000000000000000000000000000000000000 1 KEY g a",
        "SET KEY text NX",
    ])
    .prop_map(split)
}

pub(crate) fn words<const N: usize>(command: &str, rest: [Vec<String>; N]) -> Vec<String> {
    let mut args = split(command);
    args.extend(rest.into_iter().flatten());
    args
}

pub(crate) fn split(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}
