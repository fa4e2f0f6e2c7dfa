//! [`Work`]: what the run loop starts. One delivery at a time or a batch, it is the same to the loop.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use stream_core::Outcome;

use crate::codec::FromDelivery;
use crate::delivery::Delivery;
use crate::handler::Handler;

/// The outcomes of the deliveries that were started together.
#[derive(Debug)]
pub(crate) enum Outcomes {
    /// One for all.
    All(Outcome),
    /// One for each that could be decoded, in their order.
    Each(Vec<Outcome>),
}

impl Outcomes {
    /// The outcome of a delivery that was started alone.
    pub(crate) fn single(self) -> Outcome {
        match self {
            Self::All(outcome) => outcome,
            Self::Each(outcomes) => outcomes.into_iter().next().unwrap_or_else(too_few),
        }
    }
}

/// The outcome of an item for which a batch handler has returned none.
pub(crate) fn too_few() -> Outcome {
    Outcome::failed("the batch handler returned fewer outcomes than items")
}

/// Deliveries that were given to a handler.
pub(crate) struct Begun<F> {
    /// The running handler; `None` if no delivery could be decoded.
    pub(crate) future: Option<F>,
    /// Which deliveries could not be decoded, by their place, and why.
    pub(crate) undecodable: Vec<(usize, String)>,
}

/// What the run loop starts.
pub(crate) trait Work: Send + Sync + 'static {
    type Future: Future<Output = Outcomes> + Send + 'static;

    /// The most deliveries that one start takes, at least 1.
    fn batch(&self) -> usize;

    fn begin(&self, deliveries: &[Delivery]) -> Begun<Self::Future>;

    /// The same for one alone: the running handler, or why the delivery could not be decoded.
    fn begin_one(&self, delivery: &Delivery) -> Result<Option<Self::Future>, String> {
        let Begun { future, mut undecodable } = self.begin(std::slice::from_ref(delivery));
        undecodable.pop().map_or(Ok(future), |(_, error)| Err(error))
    }

    /// How long what was begun may take, of what the settings say.
    fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        timeout
    }
}

/// A handler of single deliveries.
pub(crate) struct Single<H, A> {
    handler: H,
    args: PhantomData<fn(A)>,
}

impl<H, A> Single<H, A> {
    pub(crate) fn new(handler: H) -> Arc<Self> {
        Arc::new(Self { handler, args: PhantomData })
    }
}

impl<H: Handler<A>, A: 'static> Work for Single<H, A> {
    type Future = futures_util::future::Map<H::Future, fn(Outcome) -> Outcomes>;

    fn batch(&self) -> usize {
        1
    }

    fn begin(&self, deliveries: &[Delivery]) -> Begun<Self::Future> {
        let mut begun = Begun { future: None, undecodable: Vec::new() };
        for (place, delivery) in deliveries.iter().enumerate() {
            match self.begin_one(delivery) {
                Ok(future) => begun.future = future,
                Err(error) => begun.undecodable.push((place, error)),
            }
        }
        begun
    }

    #[inline]
    fn begin_one(&self, delivery: &Delivery) -> Result<Option<Self::Future>, String> {
        match self.handler.call(delivery) {
            Ok(future) => Ok(Some(futures_util::FutureExt::map(future, Outcomes::All as fn(Outcome) -> Outcomes))),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What a batch handler returns.
#[diagnostic::on_unimplemented(
    message = "a batch handler cannot return `{Self}`",
    note = "return `()`, `Outcome`, `Vec<Outcome>` (one for each item, in order), or a `Result` of these whose error implements `Display`"
)]
pub trait IntoOutcomes {
    /// One outcome for all, or one for each item in their order.
    fn into_outcomes(self) -> Result<Outcome, Vec<Outcome>>;
}

impl IntoOutcomes for () {
    fn into_outcomes(self) -> Result<Outcome, Vec<Outcome>> {
        Ok(Outcome::Done)
    }
}

impl IntoOutcomes for Outcome {
    fn into_outcomes(self) -> Result<Outcome, Vec<Outcome>> {
        Ok(self)
    }
}

impl IntoOutcomes for Vec<Outcome> {
    fn into_outcomes(self) -> Result<Outcome, Vec<Outcome>> {
        Err(self)
    }
}

impl<T: IntoOutcomes, E: std::fmt::Display> IntoOutcomes for Result<T, E> {
    fn into_outcomes(self) -> Result<Outcome, Vec<Outcome>> {
        match self {
            Ok(outcomes) => outcomes.into_outcomes(),
            Err(error) => Ok(Outcome::failed(error)),
        }
    }
}

/// A handler of batches.
pub(crate) struct Batch<F, T> {
    handler: F,
    most: usize,
    item: PhantomData<fn(T)>,
}

impl<F, T> Batch<F, T> {
    pub(crate) fn new(most: usize, handler: F) -> Arc<Self> {
        Arc::new(Self { handler, most: most.max(1), item: PhantomData })
    }
}

impl<F, Fut, T> Work for Batch<F, T>
where
    F: Fn(Vec<T>) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoOutcomes,
    T: FromDelivery + 'static,
{
    type Future = futures_util::future::Map<Fut, fn(Fut::Output) -> Outcomes>;

    fn batch(&self) -> usize {
        self.most
    }

    fn begin(&self, deliveries: &[Delivery]) -> Begun<Self::Future> {
        let mut undecodable = Vec::new();
        let mut items = Vec::with_capacity(deliveries.len());
        for (place, delivery) in deliveries.iter().enumerate() {
            match T::from_delivery(delivery) {
                Ok(item) => items.push(item),
                Err(error) => undecodable.push((place, error.to_string())),
            }
        }
        let outcomes: fn(Fut::Output) -> Outcomes =
            |output| output.into_outcomes().map_or_else(Outcomes::Each, Outcomes::All);
        let future = (!items.is_empty()).then(|| futures_util::FutureExt::map((self.handler)(items), outcomes));
        Begun { future, undecodable }
    }
}
