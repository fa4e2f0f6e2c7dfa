//! What the server says about a stream and its group, and how busy it was.

use stream_redis::Value;
use stream_redis::command::{Command, XInfoGroups};
use stream_testkit::{Cli, RealServer};
use streamkeeper::{EntryId, StreamKey};

use super::process::Cpu;
use crate::Failure;

pub(crate) const GROUP: &str = "g";

/// Asks the server on a connection of its own.
#[derive(Debug)]
pub(crate) struct Asked {
    cli: Cli,
    cpu: Option<Cpu>,
}

/// Where a group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) delivered: EntryId,
    pub(crate) pending: u64,
}

/// How often a command ran, and its time on the server in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) count: u64,
    pub(crate) microseconds: u64,
}

impl Asked {
    pub(crate) async fn of(server: &RealServer) -> Result<Self, Failure> {
        let mut cli = server.connect().await?;
        let info = cli.command(&["INFO", "server"]).await?;
        let process = info_line(&info, "process_id:").and_then(|text| text.parse().ok());
        // A server of another machine has a process that is not one of ours.
        let cpu = process.filter(|_| !server.is_external()).map(Cpu::of);
        Ok(Self { cli, cpu })
    }

    pub(crate) async fn command<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Value, Failure> {
        Ok(self.cli.command(command).await?)
    }

    pub(crate) async fn length(&mut self, stream: &str) -> Result<u64, Failure> {
        let length = self.command(&["XLEN", stream]).await?;
        Ok(length.as_int().ok_or("XLEN is not a number")? as u64)
    }

    /// The greatest id that the stream has.
    pub(crate) async fn last(&mut self, stream: &str) -> Result<EntryId, Failure> {
        let entries = self.command(&["XREVRANGE", stream, "+", "-", "COUNT", "1"]).await?;
        let id = match &entries {
            Value::Array(entries) => match entries.first() {
                Some(Value::Array(entry)) => entry.first().and_then(Value::as_bytes),
                _ => None,
            },
            _ => None,
        };
        Ok(EntryId::parse(id.ok_or("the stream is empty")?)?)
    }

    /// A group that has delivered nothing, in place of whatever groups there are.
    pub(crate) async fn fresh_group(&mut self, stream: &str) -> Result<(), Failure> {
        // An error says that there is no such group, which is as well.
        let _ = self.cli.command(&["XGROUP", "DESTROY", stream, GROUP]).await;
        self.command(&["XGROUP", "CREATE", stream, GROUP, "0", "MKSTREAM"]).await?;
        self.command(&["CONFIG", "RESETSTAT"]).await?;
        Ok(())
    }

    pub(crate) async fn position(&mut self, key: &StreamKey) -> Result<Position, Failure> {
        let groups = self.command(&[b"XINFO".as_slice(), b"GROUPS", key.as_bytes()]).await?;
        let groups = XInfoGroups { key: key.clone() }.decode(groups)?;
        let group = groups.into_iter().find(|group| group.name.as_bytes() == GROUP.as_bytes());
        let group = group.ok_or("the group is gone")?;
        Ok(Position { delivered: group.last_delivered, pending: group.pending })
    }

    /// What the server counted since [`fresh_group`](Self::fresh_group) for a command, as `xack`.
    pub(crate) async fn calls(&mut self, command: &str) -> Result<Calls, Failure> {
        let stats = self.command(&["INFO", "commandstats"]).await?;
        Ok(info_line(&stats, &format!("cmdstat_{command}:")).map(parse_calls).unwrap_or_default())
    }

    /// Processor time of the server in seconds.
    pub(crate) fn cpu(&mut self) -> Option<f64> {
        Some(self.cpu.as_mut()?.look()?.as_secs_f64())
    }
}

/// The rest of the line of an `INFO` reply that begins with `name`.
fn info_line<'a>(info: &'a Value, name: &str) -> Option<&'a str> {
    std::str::from_utf8(info.as_bytes()?).ok()?.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn parse_calls(line: &str) -> Calls {
    let value = |name: &str| line.split(',').find_map(|part| part.strip_prefix(name)?.parse().ok()).unwrap_or(0);
    Calls { count: value("calls="), microseconds: value("usec=") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_their_line() {
        let info = Value::bulk("# Commandstats\r\ncmdstat_xack:calls=7,usec=90,usec_per_call=12.85\r\n");
        let line = info_line(&info, "cmdstat_xack:").unwrap();
        assert_eq!(parse_calls(line), Calls { count: 7, microseconds: 90 });
        assert_eq!(info_line(&info, "cmdstat_xadd:"), None);
    }
}
