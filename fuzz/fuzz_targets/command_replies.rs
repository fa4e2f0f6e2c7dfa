//! Replies on the command connection: the decoder of each command and script takes any value, and accepts it or refuses it;
//! what it makes of it is never more than there was.
#![no_main]

use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stream_core::{ConsumerName, EntryId, GroupName, StreamKey};
use stream_redis::Value;
use stream_redis::command::{
    Command, Del, Exists, HGet, HGetAll, KeyType, Ping, SCard, SIsMember, SRem, SScan, Time, TouchConsumer, Trim, XAck,
    XAdd, XAutoClaim, XClaim, XDel, XGroupCreate, XGroupCreateConsumer, XGroupDelConsumer, XGroupDestroy, XGroupSetId,
    XInfoConsumers, XInfoGroups, XInfoStream, XLastEntry, XLen, XPending, XPendingSummary, XRange, XTrim,
};

/// A reply of any shape, not deeper than replies are.
#[derive(Debug)]
struct Reply(Value);

impl<'a> Arbitrary<'a> for Reply {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        value(input, 0).map(Self)
    }
}

/// Words that decoders look for; without them hardly any value would get past the first look.
const WORDS: &[&str] = &[
    "1-1",
    "2-0",
    "0-0",
    "name",
    "pending",
    "idle",
    "inactive",
    "consumers",
    "last-delivered-id",
    "entries-read",
    "lag",
    "length",
    "last-generated-id",
    "first-entry",
    "max-deleted-entry-id",
    "entries-added",
    "groups",
    "OK",
    "PONG",
    "stream",
];

fn value(input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let leaves = 5;
    let kinds = if depth < 5 { leaves + 2 } else { leaves };
    Ok(match input.int_in_range(0..=kinds)? {
        0 => Value::Nil,
        1 => Value::Int(input.arbitrary()?),
        2 => Value::bulk(input.arbitrary::<&[u8]>()?),
        3 => Value::bulk(input.choose(WORDS)?),
        4 => Value::Double(input.arbitrary()?),
        5 => Value::Bool(input.arbitrary()?),
        6 => Value::Array((0..input.int_in_range(0..=12)?).map(|_| value(input, depth + 1)).collect::<Result<_>>()?),
        _ => {
            let pair = |input: &mut Unstructured<'_>| Ok((value(input, depth + 1)?, value(input, depth + 1)?));
            Value::Map((0..input.int_in_range(0..=8)?).map(|_| pair(input)).collect::<Result<_>>()?)
        }
    })
}

fuzz_target!(|reply: Reply| {
    let key = StreamKey::new("s").expect("the name is not empty");
    let group = GroupName::new("g").expect("the name is not empty");
    let consumer = ConsumerName::new("c").expect("the name is not empty");
    let lease = Duration::from_secs(30);
    let (ids, member) = (vec![EntryId::new(1, 1)], Bytes::from_static(b"m"));
    macro_rules! decode {
        ($($command:expr),* $(,)?) => { $( let _ = $command.decode(reply.0.clone()); )* };
    }
    for just_id in [false, true] {
        let (group, consumer, key) = (group.clone(), consumer.clone(), key.clone());
        decode!(
            XAutoClaim {
                key: key.clone(),
                group: group.clone(),
                consumer: consumer.clone(),
                min_idle: lease,
                start: EntryId::ZERO,
                count: 10,
                just_id
            },
            XClaim {
                key,
                group,
                consumer,
                min_idle: lease,
                ids: ids.clone(),
                idle: None,
                retry_count: None,
                force: false,
                just_id
            },
        );
    }
    decode!(
        XAck { key: key.clone(), group: group.clone(), ids: ids.clone() },
        XAdd::new(key.clone(), vec![(member.clone(), member.clone())]),
        XDel { key: key.clone(), ids },
        XInfoStream { key: key.clone() },
        XInfoGroups { key: key.clone() },
        XInfoConsumers { key: key.clone(), group: group.clone() },
        XPending {
            key: key.clone(),
            group: group.clone(),
            min_idle: None,
            from: EntryId::ZERO,
            after: false,
            to: EntryId::MAX,
            count: 10,
            consumer: None
        },
        XPendingSummary { key: key.clone(), group: group.clone() },
        XRange { key: key.clone(), from: EntryId::ZERO, to: EntryId::MAX, count: 10 },
        XLastEntry { key: key.clone() },
        XLen { key: key.clone() },
        XTrim { key: key.clone(), trim: Trim::about(10) },
        XGroupCreate {
            key: key.clone(),
            group: group.clone(),
            start: "0".to_owned(),
            make_stream: true,
            entries_read: None
        },
        XGroupCreateConsumer { key: key.clone(), group: group.clone(), consumer: consumer.clone() },
        XGroupSetId { key: key.clone(), group: group.clone(), last_delivered: EntryId::ZERO, entries_read: Some(1) },
        TouchConsumer { key: key.clone(), group: group.clone(), consumer: consumer.clone() },
        XGroupDelConsumer { key: key.clone(), group: group.clone(), consumer },
        XGroupDestroy { key: key.clone(), group },
        SScan { key: key.clone(), cursor: member.clone(), count: 10 },
        SCard { key: key.clone() },
        SIsMember { key: key.clone(), member: member.clone() },
        SRem { key: key.clone(), members: vec![member] },
        HGetAll { key: key.clone() },
        HGet { key: key.clone(), field: "data" },
        Del { key: key.clone() },
        Exists { key: key.clone() },
        KeyType { key },
        Ping,
        Time,
    );
});
