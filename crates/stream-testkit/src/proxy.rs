//! [`Proxy`]: a TCP proxy that fails on purpose: stalls, swallows, delays, cuts, refuses.
//!
//! It forwards bytes and knows nothing of what they mean, so whatever a client notices it notices as it would on a real
//! network. What must stay true: a connection from which bytes were swallowed never forwards in that direction again, since
//! no real network loses a piece out of the middle of a stream.

mod weather;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use weather::{Spell, Weather};

/// What the proxy does with bytes and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Forwards both ways.
    #[default]
    Forward,
    /// Forwards nothing either way; sockets stay open, and new ones are accepted. What was sent meanwhile arrives when
    /// the mode changes, as after a network that came back.
    Stall,
    /// Forwards to the server only: what it answers stays under way until the mode changes.
    StallReplies,
    /// Throws away what the server answers: its connections are half open for good, also after the mode changes.
    SwallowReplies,
    /// Forwards both ways, each piece that much later.
    Delay(Duration),
    /// Forwards both ways, this many bytes a second each; at least one.
    Throttle(u32),
    /// Closes new connections as soon as they are accepted, as a port without a server behind a load balancer does. Those
    /// that are open go on.
    Refuse,
}

/// When a connection is cut, see [`Proxy::cut_at`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// Before the request reaches the server.
    BeforeRequest,
    /// After the server has answered, before the answer reaches the client.
    BeforeReply,
    /// After the first half of what came of the answer has reached the client.
    InsideReply,
}

/// What a half-open connection does not carry any more, see [`Proxy::silence_at`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Silence {
    /// Neither requests nor replies.
    Both,
    /// Replies: requests arrive and are carried out.
    Replies,
}

/// What becomes of a connection on which a word passes.
#[derive(Debug, Clone, Copy)]
enum Trap {
    Cut(Moment),
    Silence(Silence),
}

/// A proxy in front of one server; it ends, and its connections with it, when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    target: String,
    mode: watch::Sender<Mode>,
    /// Cancelled to cut all connections, and then replaced.
    cut: Mutex<CancellationToken>,
    traps: Mutex<Vec<(Vec<u8>, Trap)>>,
    traps_sprung: AtomicU64,
    accepted: AtomicU64,
    open: AtomicUsize,
}

impl Proxy {
    /// Listens on a free port of the loopback interface and forwards to `target`, as in `127.0.0.1:6379`.
    ///
    /// # Errors
    /// When no port can be listened on.
    pub async fn start(target: impl Into<String>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: target.into(),
            mode: watch::Sender::new(Mode::Forward),
            cut: Mutex::default(),
            traps: Mutex::default(),
            traps_sprung: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            open: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// The URL to connect to.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Changes what it does, for connections that are open as well.
    pub fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// Goes through `spells`, with `calm` after each. Where connections are refused, those that are open end as well.
    pub async fn play(&self, spells: impl IntoIterator<Item = Spell>, calm: Duration) {
        for spell in spells {
            self.begin(spell.mode);
            tokio::time::sleep(spell.lasts).await;
            self.set(Mode::Forward);
            tokio::time::sleep(calm).await;
        }
    }

    /// Begins a time of trouble: as [`set`](Self::set), and where connections are refused, those that are open end as well.
    pub fn begin(&self, mode: Mode) {
        self.set(mode);
        if mode == Mode::Refuse {
            self.cut();
        }
    }

    /// Closes all connections. New ones are accepted.
    pub fn cut(&self) {
        std::mem::take(&mut *lock(&self.shared.cut)).cancel();
    }

    /// Closes, once, the next connection on which a request with `word` in it passes, at `moment`.
    pub fn cut_at(&self, word: impl Into<Vec<u8>>, moment: Moment) {
        lock(&self.shared.traps).push((word.into(), Trap::Cut(moment)));
    }

    /// Makes half open, once and for good, the next connection on which a request with `word` in it passes: its sockets stay
    /// open, and from this request on it carries less. Others are not touched.
    pub fn silence_at(&self, word: impl Into<Vec<u8>>, silence: Silence) {
        lock(&self.shared.traps).push((word.into(), Trap::Silence(silence)));
    }

    /// How many connections met with [`cut_at`](Self::cut_at) or [`silence_at`](Self::silence_at).
    pub fn cuts(&self) -> u64 {
        self.shared.traps_sprung.load(Ordering::Relaxed)
    }

    /// How many connections were ever accepted.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        if *shared.mode.borrow() == Mode::Refuse {
            continue;
        }
        let cut = lock(&shared.cut).clone();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            shared.open.fetch_add(1, Ordering::Relaxed);
            // A server that is down closes the client's connection, by dropping it.
            if let Ok(server) = TcpStream::connect(&shared.target).await {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let held = Held::default();
                tokio::select! {
                    () = cut.cancelled() => {}
                    () = requests(&shared, from_client, to_server, &held) => {}
                    () = replies(&shared, from_server, to_client, &held) => {}
                }
            }
            shared.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// What a trap has made of one connection.
#[derive(Debug, Default)]
struct Held {
    /// The next answer ends the connection.
    cut: AtomicBool,
    /// And its first half is let through.
    half: AtomicBool,
    /// Answers are thrown away.
    silent: AtomicBool,
}

/// Ends when the connection is over.
async fn requests(shared: &Shared, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, held: &Held) {
    let mut mode = shared.mode.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    let mut deaf = false;
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        let piece = &buffer[..length];
        let Ok(now) = mode.wait_for(|mode| *mode != Mode::Stall).await.map(|mode| *mode) else { return };
        match shared.trap(piece) {
            Some(Trap::Cut(Moment::BeforeRequest)) => return,
            Some(Trap::Cut(Moment::BeforeReply)) => held.cut.store(true, Ordering::Relaxed),
            Some(Trap::Cut(Moment::InsideReply)) => {
                held.half.store(true, Ordering::Relaxed);
                held.cut.store(true, Ordering::Relaxed);
            }
            Some(Trap::Silence(silence)) => {
                held.silent.store(true, Ordering::Relaxed);
                deaf |= silence == Silence::Both;
            }
            None => {}
        }
        if !deaf && forward(&mode, now, piece, &mut to).await.is_err() {
            return;
        }
    }
}

/// Ends when the connection is over, or when the next answer must not pass.
async fn replies(shared: &Shared, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, held: &Held) {
    let mut mode = shared.mode.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    let mut swallowed = false;
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        let passes = |mode: &Mode| !matches!(mode, Mode::Stall | Mode::StallReplies);
        let Ok(now) = mode.wait_for(passes).await.map(|mode| *mode) else { return };
        if held.cut.load(Ordering::Relaxed) {
            if held.half.load(Ordering::Relaxed) {
                let _ = to.write_all(&buffer[..length / 2]).await;
            }
            return;
        }
        swallowed |= now == Mode::SwallowReplies || held.silent.load(Ordering::Relaxed);
        if !swallowed && forward(&mode, now, &buffer[..length], &mut to).await.is_err() {
            return;
        }
    }
}

/// Sends `piece` on, as fast as the mode allows: the one it came in, until that is over.
async fn forward(mode: &watch::Receiver<Mode>, now: Mode, mut piece: &[u8], to: &mut OwnedWriteHalf) -> io::Result<()> {
    match now {
        Mode::Delay(time) => tokio::time::sleep(time).await,
        Mode::Throttle(rate) => {
            // Twenty times a second, so that a reply arrives in many small parts.
            let most = (rate as usize / 20).max(1);
            while !piece.is_empty() && *mode.borrow() == now {
                let (part, rest) = piece.split_at(most.min(piece.len()));
                to.write_all(part).await?;
                tokio::time::sleep(Duration::from_secs_f64(part.len() as f64 / f64::from(rate.max(1)))).await;
                piece = rest;
            }
        }
        _ => {}
    }
    to.write_all(piece).await
}

impl Shared {
    fn trap(&self, piece: &[u8]) -> Option<Trap> {
        let mut traps = lock(&self.traps);
        let index = traps.iter().position(|(word, _)| piece.windows(word.len()).any(|window| window == word))?;
        self.traps_sprung.fetch_add(1, Ordering::Relaxed);
        Some(traps.remove(index).1)
    }
}

#[cfg(test)]
mod tests;
