//! [`Scripted`]: a server whose every answer the test makes up, where no real server can be brought to give it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

type Answer = dyn Fn(&[String]) -> String + Send + Sync;

/// A server that speaks RESP2 and knows nothing but what it was told to say; it takes no new connections once it is dropped.
#[derive(Debug)]
pub struct Scripted {
    port: u16,
    accepted: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Scripted {
    /// Listens on a free port of the loopback interface. `answer` is given each command and returns the reply as it is on the
    /// wire; an empty one is none, for ever. `HELLO` is not known, and what greets a server else is answered already.
    ///
    /// # Errors
    /// When no port can be listened on.
    pub async fn start(answer: impl Fn(&[String]) -> String + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let accepted = Arc::new(AtomicU64::new(0));
        let (counted, answer): (_, Arc<Answer>) = (Arc::clone(&accepted), Arc::new(answer));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, Arc::clone(&answer)));
            }
        });
        Ok(Self { port, accepted, task })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were ever accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: Arc<Answer>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await? > 0 {
        while let Some((args, used)) = command(&bytes) {
            bytes.drain(..used);
            let told = match args.first().map(|name| name.to_ascii_uppercase()).as_deref() {
                Some("HELLO") => "-ERR unknown command\r\n".to_owned(),
                Some("PING") => "+PONG\r\n".to_owned(),
                Some("CLIENT" | "AUTH" | "SELECT") => "+OK\r\n".to_owned(),
                _ => answer(&args),
            };
            stream.write_all(told.as_bytes()).await?;
        }
    }
    Ok(())
}

/// The first command, if it is there whole, and the bytes that it takes.
fn command(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let (count, mut at) = number(bytes, 0)?;
    let mut args = Vec::new();
    for _ in 0..count {
        let (length, begin) = number(bytes, at)?;
        args.push(String::from_utf8_lossy(bytes.get(begin..begin + length)?).into_owned());
        at = begin + length + 2;
    }
    (at <= bytes.len()).then_some((args, at))
}

/// The number behind the sign at `at`, and where the next line begins.
fn number(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let end = at + bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    Some((std::str::from_utf8(bytes.get(at + 1..end)?).ok()?.parse().ok()?, end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_taken_once_it_is_whole() {
        let bytes = b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n*1\r\n$4\r\nPING\r\n";
        let whole = b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n".len();
        for length in 0..whole {
            assert_eq!(command(&bytes[..length]), None, "{length}");
        }
        assert_eq!(command(bytes), Some((vec!["XLEN".to_owned(), "s".to_owned()], whole)));
    }
}
