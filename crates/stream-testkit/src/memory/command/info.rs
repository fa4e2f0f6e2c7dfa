//! What a stream tells about itself: `XINFO`.

use bytes::Bytes;
use stream_redis::Value;

use super::super::db::Db;
use super::super::profile::Profile;
use super::super::reply::{
    Reply, count, entry_value, error, id_value, no_group_in_stream, no_such_key, subcommand_syntax,
};
use super::super::stream::Stream;
use super::need_sub;

pub(super) fn xinfo(db: &mut Db, args: &[Bytes]) -> Reply {
    let profile = db.profile;
    let subcommand = args[1].to_ascii_lowercase();
    let arity = match subcommand.as_slice() {
        b"stream" => -3,
        b"groups" => 3,
        b"consumers" => 4,
        _ if profile.subcommands_are_commands() => {
            let name = String::from_utf8_lossy(&args[1]);
            return Err(error(&format!("ERR unknown subcommand '{name}'. Try XINFO HELP.")));
        }
        // Redis 6.2 looks the key up before it finds that there is no such subcommand.
        _ => -2,
    };
    need_sub(args, arity, profile)?;
    let Some(key) = args.get(2) else { return Err(subcommand_syntax("XINFO", &args[1], profile)) };
    let stream = db.stream(key)?.ok_or_else(no_such_key)?;
    match (subcommand.as_slice(), args.len()) {
        (b"stream", 3) => Ok(about_stream(stream, profile)),
        (b"groups", 3) => Ok(about_groups(stream, profile)),
        (b"consumers", 4) => about_consumers(stream, key, &args[3], db.now, profile),
        _ => Err(subcommand_syntax("XINFO", &args[1], profile)),
    }
}

fn about_stream(stream: &Stream, profile: Profile) -> Value {
    let facts = stream.facts();
    let edge = |entry: Option<(&stream_core::EntryId, &Vec<Bytes>)>| {
        entry.map_or(Value::Nil, |(id, fields)| entry_value(*id, Some(fields)))
    };
    let mut fields = vec![
        ("length", count(stream.entries.len())),
        ("radix-tree-keys", count(stream.node_count())),
        ("radix-tree-nodes", count(stream.node_count() + 1)),
        ("last-generated-id", id_value(facts.last)),
    ];
    if profile.has_lag() {
        fields.push(("max-deleted-entry-id", id_value(facts.max_deleted)));
        fields.push(("entries-added", Value::Int(facts.added as i64)));
        fields.push(("recorded-first-entry-id", id_value(facts.first)));
    }
    fields.push(("groups", count(stream.groups.len())));
    fields.push(("first-entry", edge(stream.entries.first_key_value())));
    fields.push(("last-entry", edge(stream.entries.last_key_value())));
    map(fields)
}

fn about_groups(stream: &Stream, profile: Profile) -> Value {
    let facts = stream.facts();
    let about = |(name, group): (&Bytes, &super::super::group::Group)| {
        let mut fields = vec![
            ("name", Value::Bulk(name.clone())),
            ("consumers", count(group.consumers.len())),
            ("pending", count(group.pending.len())),
            ("last-delivered-id", id_value(group.last_id)),
        ];
        if profile.has_lag() {
            fields.push(("entries-read", group.entries_read.map_or(Value::Nil, Value::Int)));
            fields.push(("lag", group.lag(facts, profile).map_or(Value::Nil, Value::Int)));
        }
        map(fields)
    };
    Value::Array(stream.groups.iter().map(about).collect())
}

fn about_consumers(stream: &Stream, key: &[u8], name: &Bytes, now: i64, profile: Profile) -> Reply {
    let group = stream.groups.get(name).ok_or_else(|| no_group_in_stream(key, name))?;
    let about = |(name, consumer): (&Bytes, &super::super::group::Consumer)| {
        let mut fields = vec![
            ("name", Value::Bulk(name.clone())),
            ("pending", count(consumer.pending.len())),
            ("idle", Value::Int((now - consumer.seen_at).max(0))),
        ];
        if profile >= Profile::Redis72Plus {
            fields.push(("inactive", Value::Int(consumer.active_at.map_or(-1, |at| now - at))));
        }
        map(fields)
    };
    Ok(Value::Array(group.consumers.iter().map(about).collect()))
}

fn map(fields: Vec<(&str, Value)>) -> Value {
    Value::Map(fields.into_iter().map(|(name, value)| (Value::bulk(name), value)).collect())
}
