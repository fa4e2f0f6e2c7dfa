//! [`Proxy`]: a TCP proxy that fails on purpose: stalls, swallows, delays, cuts, refuses.
//!
//! It forwards bytes and knows nothing of what they mean, so whatever a client notices it notices as it would on a real
//! network. What must stay true: a connection from which bytes were swallowed never forwards in that direction again, since
//! no real network loses a piece out of the middle of a stream.

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
    traps: Mutex<Vec<(Vec<u8>, Moment)>>,
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

    /// Closes all connections. New ones are accepted.
    pub fn cut(&self) {
        std::mem::take(&mut *lock(&self.shared.cut)).cancel();
    }

    /// Closes, once, the next connection on which a request with `word` in it passes, at `moment`.
    pub fn cut_at(&self, word: impl Into<Vec<u8>>, moment: Moment) {
        lock(&self.shared.traps).push((word.into(), moment));
    }

    /// How many connections were cut by [`cut_at`](Self::cut_at).
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
                let withhold = AtomicBool::new(false);
                tokio::select! {
                    () = cut.cancelled() => {}
                    () = requests(&shared, from_client, to_server, &withhold) => {}
                    () = replies(&shared, from_server, to_client, &withhold) => {}
                }
            }
            shared.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Ends when the connection is over.
async fn requests(shared: &Shared, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, withhold: &AtomicBool) {
    let mut mode = shared.mode.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        let piece = &buffer[..length];
        let Ok(now) = mode.wait_for(|mode| *mode != Mode::Stall).await.map(|mode| *mode) else { return };
        if let Mode::Delay(time) = now {
            tokio::time::sleep(time).await;
        }
        match shared.trap(piece) {
            Some(Moment::BeforeRequest) => return,
            Some(Moment::BeforeReply) => withhold.store(true, Ordering::Relaxed),
            None => {}
        }
        if to.write_all(piece).await.is_err() {
            return;
        }
    }
}

/// Ends when the connection is over, or when the next answer must not pass.
async fn replies(shared: &Shared, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, withhold: &AtomicBool) {
    let mut mode = shared.mode.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    let mut swallowed = false;
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        let passes = |mode: &Mode| !matches!(mode, Mode::Stall | Mode::StallReplies);
        let Ok(now) = mode.wait_for(passes).await.map(|mode| *mode) else { return };
        if let Mode::Delay(time) = now {
            tokio::time::sleep(time).await;
        }
        if withhold.load(Ordering::Relaxed) {
            return;
        }
        swallowed |= now == Mode::SwallowReplies;
        if !swallowed && to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

impl Shared {
    fn trap(&self, piece: &[u8]) -> Option<Moment> {
        let mut traps = lock(&self.traps);
        let index = traps.iter().position(|(word, _)| piece.windows(word.len()).any(|window| window == word))?;
        self.traps_sprung.fetch_add(1, Ordering::Relaxed);
        Some(traps.remove(index).1)
    }
}
