//! [`Handler`]: an async function of extractors, and what its return value means.

use std::fmt::Display;
use std::future::Future;

use stream_core::Outcome;

use crate::codec::{DecodeError, FromDelivery};
use crate::delivery::Delivery;

/// Handles one delivery: an async function (or closure) of up to six extractors, each [`FromDelivery`], that returns
/// something which is [`IntoOutcome`].
///
/// A handler must not block its thread: use `tokio::task::spawn_blocking` for what does. Handlers that were seen to be ready
/// at once are polled where they are started, by the run loop of their stream, so one that then blocks holds up all that
/// this consumer does for the stream, but not the leases of what it holds, and not for longer than its bound a stop
/// ([`DrainReport::stuck`](field@crate::DrainReport::stuck),
/// [`EphemeralReport::stuck`](field@crate::EphemeralReport::stuck)); of a durable one, [`Event::Blocked`](crate::Event::Blocked)
/// tells. On a runtime of one
/// thread it holds up everything.
///
/// ```
/// use stream_consumer::{Context, Handler, Json, Outcome};
/// #[derive(serde::Deserialize)]
/// struct Order { id: u64 }
///
/// async fn bill(Json(order): Json<Order>, cx: Context) -> Result<(), std::io::Error> {
///     println!("order {} at attempt {}", order.id, cx.attempt());
///     Ok(())
/// }
/// fn check<A>(_: impl Handler<A>) {}
/// check(bill);
/// check(|| async { Outcome::Done });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not an async function of extractors that returns an outcome",
    note = "a handler is an async function or closure of up to six extractors (`Json<T>`, `Fields`, `Entry`, `Context`, ...)",
    note = "it returns `()`, `Outcome`, or a `Result` of these whose error implements `Display`",
    note = "the function, its future and all it captures must be `Send + Sync + 'static`"
)]
pub trait Handler<Args>: Send + Sync + 'static {
    /// The running handler.
    type Future: Future<Output = Outcome> + Send + 'static;

    /// Extracts the arguments and starts the handler.
    ///
    /// # Errors
    /// [`DecodeError`] when an extractor cannot make sense of the entry: the entry goes to the dead letters.
    fn call(&self, delivery: &Delivery) -> Result<Self::Future, DecodeError>;
}

/// What a handler may return.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    note = "return `()`, `Outcome`, or a `Result` of these whose error implements `Display`"
)]
pub trait IntoOutcome {
    /// The outcome it stands for.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl<T: IntoOutcome, E: Display> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => Outcome::failed(error),
        }
    }
}

macro_rules! handler {
    ($($argument:ident),*) => {
        impl<F, Fut, $($argument,)*> Handler<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            Fut::Output: IntoOutcome,
            $($argument: FromDelivery,)*
        {
            type Future = futures_util::future::Map<Fut, fn(Fut::Output) -> Outcome>;

            #[allow(unused_variables)]
            fn call(&self, delivery: &Delivery) -> Result<Self::Future, DecodeError> {
                let future = self($($argument::from_delivery(delivery)?),*);
                let outcome: fn(Fut::Output) -> Outcome = IntoOutcome::into_outcome;
                Ok(futures_util::FutureExt::map(future, outcome))
            }
        }
    };
}

handler!();
handler!(A);
handler!(A, B);
handler!(A, B, C);
handler!(A, B, C, D);
handler!(A, B, C, D, E);
handler!(A, B, C, D, E, G);
