//! The commands of the model, each parsed from its arguments exactly as a server parses it.

mod append;
mod claim;
mod collection;
mod generic;
mod group;
mod info;
mod pending;
mod range;
pub(super) mod read;
mod script;

use bytes::Bytes;
use stream_redis::ServerError;

use super::db::Db;
use super::profile::Profile;
use super::reply::{Reply, arity, unknown_command};
use read::Read;

/// What became of a command.
#[derive(Debug)]
pub(super) enum Outcome {
    Reply(Reply),
    /// Nothing to read yet: wait until something changes or the time is over.
    Block(Read),
}

type Run = fn(&mut Db, &[Bytes]) -> Reply;

/// Carries out one command.
pub(super) fn execute(db: &mut Db, args: &[Bytes]) -> Outcome {
    db.expire();
    let name = args.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
    if name == b"xread" || name == b"xreadgroup" {
        return match need(args, if name == b"xread" { -4 } else { -7 }).and_then(|()| Read::parse(args, db.profile)) {
            Ok(read) => read.start(db),
            Err(error) => Outcome::Reply(Err(error)),
        };
    }
    Outcome::Reply(reply(db, &name, args))
}

fn reply(db: &mut Db, name: &[u8], args: &[Bytes]) -> Reply {
    let (arity, run) = find(name).ok_or_else(|| unknown_command(args, db.profile))?;
    need(args, arity)?;
    run(db, args)
}

/// Whether a script may call a command with so many arguments.
fn may_call(args: &[Bytes]) -> bool {
    find(&args[0].to_ascii_lowercase()).is_none_or(|(arity, _)| arity_fits(args.len(), arity))
}

/// The number of arguments of a command, and what carries it out.
fn find(name: &[u8]) -> Option<(i32, Run)> {
    Some(match name {
        b"xadd" => (-5, append::xadd),
        b"xtrim" => (-4, append::xtrim),
        b"xdel" => (-3, append::xdel),
        b"xlen" => (2, range::xlen),
        b"xrange" => (-4, range::xrange),
        b"xrevrange" => (-4, range::xrevrange),
        b"xack" => (-4, pending::xack),
        b"xpending" => (-3, pending::xpending),
        b"xclaim" => (-6, claim::xclaim),
        b"xautoclaim" => (-6, claim::xautoclaim),
        b"xgroup" => (-2, group::xgroup),
        b"xinfo" => (-2, info::xinfo),
        b"eval" => (-3, script::eval),
        b"evalsha" => (-3, script::evalsha),
        b"script" => (-2, script::script),
        b"ping" => (-1, generic::ping),
        b"time" => (1, generic::time),
        b"exists" => (-2, generic::exists),
        b"type" => (2, generic::kind),
        b"del" | b"unlink" => (-2, generic::del),
        b"get" => (2, generic::get),
        b"set" => (-3, generic::set),
        b"flushall" | b"flushdb" => (-1, generic::flush),
        b"hset" => (-4, collection::hset),
        b"hget" => (3, collection::hget),
        b"hgetall" => (2, collection::hgetall),
        b"sadd" => (-3, collection::sadd),
        b"srem" => (-3, collection::srem),
        b"scard" => (2, collection::scard),
        b"sismember" => (3, collection::sismember),
        b"sscan" => (-3, collection::sscan),
        b"select" => (2, generic::fine),
        b"client" => (-2, generic::fine),
        b"info" => (-1, generic::info),
        b"hello" => (-1, generic::hello),
        b"command" => (-1, generic::command),
        _ => return None,
    })
}

/// Checks the number of arguments, the command included; a negative number is a minimum.
fn need(args: &[Bytes], number: i32) -> Result<(), ServerError> {
    if arity_fits(args.len(), number) {
        return Ok(());
    }
    Err(arity(&String::from_utf8_lossy(&args[0]).to_ascii_lowercase()))
}

/// Like [`need`] for a subcommand, from the generation on where these have an arity of their own.
fn need_sub(args: &[Bytes], number: i32, profile: Profile) -> Result<(), ServerError> {
    if !profile.subcommands_are_commands() || arity_fits(args.len(), number) {
        return Ok(());
    }
    let name = format!("{}|{}", String::from_utf8_lossy(&args[0]), String::from_utf8_lossy(&args[1]));
    Err(arity(&name.to_ascii_lowercase()))
}

fn arity_fits(len: usize, number: i32) -> bool {
    let wanted = number.unsigned_abs() as usize;
    if number < 0 { len >= wanted } else { len == wanted }
}
