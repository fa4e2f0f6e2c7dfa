//! Looking at entries without any group: `XLEN`, `XRANGE`, `XREVRANGE`.

use bytes::Bytes;
use stream_core::EntryId;
use stream_redis::{ServerError, Value};

use super::super::args::{Args, range_end, range_start};
use super::super::db::Db;
use super::super::reply::{Reply, count, entry_value, syntax};
use super::super::stream::Stream;

pub(super) fn xlen(db: &mut Db, args: &[Bytes]) -> Reply {
    Ok(count(db.stream(&args[1])?.map_or(0, |stream| stream.entries.len())))
}

pub(super) fn xrange(db: &mut Db, args: &[Bytes]) -> Reply {
    range(db, args, false)
}

pub(super) fn xrevrange(db: &mut Db, args: &[Bytes]) -> Reply {
    range(db, args, true)
}

fn range(db: &Db, args: &[Bytes], reverse: bool) -> Reply {
    let (start, end) = if reverse { (&args[3], &args[2]) } else { (&args[2], &args[3]) };
    let (start, end) = (range_start(start)?, range_end(end)?);
    let limit = limit(&mut Args::after(args, 4))?;
    let Some(stream) = db.stream(&args[1])? else { return Ok(Value::Array(Vec::new())) };
    match limit {
        Some(0) => Ok(Value::Nil),
        limit => Ok(Value::Array(entries(stream, start, end, limit.unwrap_or(usize::MAX), reverse))),
    }
}

fn limit(args: &mut Args<'_>) -> Result<Option<usize>, ServerError> {
    let mut limit = None;
    while args.len() > 0 {
        if !args.option("COUNT", 1) {
            return Err(syntax());
        }
        limit = Some(usize::try_from(args.int()?.max(0)).unwrap_or(usize::MAX));
    }
    Ok(limit)
}

/// The entries from `start` to `end`, both inclusive.
pub(super) fn entries(stream: &Stream, start: EntryId, end: EntryId, limit: usize, reverse: bool) -> Vec<Value> {
    if start > end {
        return Vec::new();
    }
    let range = stream.entries.range(start..=end);
    let value = |(id, fields): (&EntryId, &Vec<Bytes>)| entry_value(*id, Some(fields));
    if reverse { range.rev().take(limit).map(value).collect() } else { range.take(limit).map(value).collect() }
}
