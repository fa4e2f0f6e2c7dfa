//! Looking at what is pending and acknowledging it: `XPENDING`, `XACK`.

use bytes::Bytes;
use stream_core::EntryId;
use stream_redis::Value;

use super::super::args::{Args, range_end, range_start, strict_id};
use super::super::db::Db;
use super::super::group::{Consumer, Group, Pending};
use super::super::reply::{Reply, count, id_value, no_key_or_group, syntax};

pub(super) fn xack(db: &mut Db, args: &[Bytes]) -> Reply {
    let Some(group) = db.group_mut(&args[1], &args[2])? else { return Ok(Value::Int(0)) };
    let ids = args[3..].iter().map(|id| strict_id(id, 0)).collect::<Result<Vec<_>, _>>()?;
    Ok(count(ids.into_iter().filter(|&id| group.forget(id)).count()))
}

pub(super) fn xpending(db: &mut Db, args: &[Bytes]) -> Reply {
    let range = match args.len() {
        3 => None,
        6..=9 => Some(Range::parse(args)?),
        _ => return Err(syntax()),
    };
    let (key, name) = (&args[1], &args[2]);
    let group = db.group(key, name)?.ok_or_else(|| no_key_or_group(key, name))?;
    Ok(range.map_or_else(|| summary(group), |range| range.list(group, db.now)))
}

struct Range {
    min_idle: i64,
    start: EntryId,
    end: EntryId,
    count: usize,
    consumer: Option<Bytes>,
}

impl Range {
    fn parse(args: &[Bytes]) -> Result<Self, stream_redis::ServerError> {
        let mut rest = Args::after(args, 3);
        let mut min_idle = 0;
        if rest.option("IDLE", 0) {
            min_idle = rest.int()?;
            if args.len() < 8 {
                return Err(syntax());
            }
        }
        let (start, end) = (rest.expect()?, rest.expect()?);
        let count = usize::try_from(rest.int()?.max(0)).unwrap_or(usize::MAX);
        let (start, end) = (range_start(start)?, range_end(end)?);
        Ok(Self { min_idle, start, end, count, consumer: rest.next().cloned() })
    }

    fn list(&self, group: &Group, now: i64) -> Value {
        if self.start > self.end {
            return Value::Array(Vec::new());
        }
        let range = self.start..=self.end;
        let rows: Box<dyn Iterator<Item = (&EntryId, &Pending)>> = match &self.consumer {
            None => Box::new(group.pending.range(range)),
            Some(name) => {
                let own =
                    group.consumers.get(name).into_iter().flat_map(|consumer| consumer.pending.range(range.clone()));
                Box::new(own.filter_map(|id| group.pending.get_key_value(id)))
            }
        };
        let old_enough = |pending: &Pending| self.min_idle == 0 || now - pending.delivered_at >= self.min_idle;
        let rows = rows.filter(|(_, pending)| old_enough(pending)).take(self.count);
        let row = |(id, pending): (&EntryId, &Pending)| {
            Value::Array(vec![
                id_value(*id),
                Value::Bulk(pending.consumer.clone()),
                Value::Int((now - pending.delivered_at).max(0)),
                Value::Int(pending.deliveries),
            ])
        };
        Value::Array(rows.map(row).collect())
    }
}

fn summary(group: &Group) -> Value {
    let (Some(first), Some(last)) = (group.pending.keys().next(), group.pending.keys().next_back()) else {
        return Value::Array(vec![Value::Int(0), Value::Nil, Value::Nil, Value::Nil]);
    };
    let holders = group.consumers.iter().filter(|(_, consumer)| !consumer.pending.is_empty());
    let holder = |(name, consumer): (&Bytes, &Consumer)| {
        Value::Array(vec![Value::Bulk(name.clone()), Value::bulk(consumer.pending.len().to_string())])
    };
    let holders = Value::Array(holders.map(holder).collect());
    Value::Array(vec![count(group.pending.len()), id_value(*first), id_value(*last), holders])
}
