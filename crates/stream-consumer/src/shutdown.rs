//! [`Shutdown`]: how a consumer is told to stop, once to drain and twice to be quick about it.

use std::future::Future;

use tokio_util::sync::CancellationToken;

/// A switch with two positions: *stop* (finish what runs, within the grace period) and *stop now* (abort what runs).
/// Clones share the switch.
///
/// ```
/// use stream_consumer::Shutdown;
/// let shutdown = Shutdown::new();
/// shutdown.stop();
/// assert!(shutdown.is_stopping() && !shutdown.is_immediate());
/// shutdown.stop(); // the second time means now
/// assert!(shutdown.is_immediate());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    stop: CancellationToken,
    now: CancellationToken,
}

impl Shutdown {
    /// A switch that nobody has turned yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a graceful stop; asked a second time, for an immediate one.
    pub fn stop(&self) {
        if self.stop.is_cancelled() {
            self.now.cancel();
        }
        self.stop.cancel();
    }

    /// Asks for a graceful stop, however often it was asked for before.
    pub(crate) fn stop_gently(&self) {
        self.stop.cancel();
    }

    /// Asks for an immediate stop: running handlers are aborted, what they held is handed back.
    pub fn stop_now(&self) {
        self.stop.cancel();
        self.now.cancel();
    }

    /// Whether a stop was asked for.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Whether an immediate stop was asked for.
    pub fn is_immediate(&self) -> bool {
        self.now.is_cancelled()
    }

    /// Waits until a stop is asked for.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Waits until an immediate stop is asked for.
    pub async fn immediate(&self) {
        self.now.cancelled().await;
    }

    /// A switch turned by the process's signals: SIGTERM and Ctrl-C, the first to drain, the second to be quick.
    ///
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new();
        let turned = shutdown.clone();
        let mut signals = Signals::new()?;
        tokio::spawn(async move {
            while !turned.is_immediate() {
                signals.next().await;
                turned.stop();
            }
        });
        Ok(shutdown)
    }

    /// A switch that this one turns, and that can be turned without turning this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { stop: self.stop.child_token(), now: self.now.child_token() }
    }

    /// Runs `work` while `signal` is awaited beside it; when the signal comes, a graceful stop is asked for.
    pub(crate) async fn stop_on<S: Future, W: Future>(&self, signal: S, work: W) -> W::Output {
        tokio::pin!(signal, work);
        tokio::select! {
            biased;
            output = &mut work => return output,
            _ = &mut signal => self.stop(),
        }
        work.await
    }
}

/// Completes at the first SIGTERM or Ctrl-C; for `run_until`.
///
/// # Errors
/// When the signal handlers cannot be installed.
pub fn shutdown_signal() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut signals = Signals::new()?;
    Ok(async move { signals.next().await })
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    #[allow(clippy::unnecessary_wraps)]
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
