//! [`PartitionedPublisher`]: a publisher for each partition of a logical stream; the key of an entry says which.
//!
//! What must stay true: entries of one key keep the order in which they were accepted, as far as one [`Publisher`] keeps it.

use std::time::Duration;

use futures_util::future::join_all;
use stream_core::{EntryId, Partitions, StreamKey};

use super::joint::Joint;
use super::{PublishError, Publisher, PublisherBuilder, Receipt, Unconfirmed};
use crate::{Client, Error, ErrorKind};

/// Appends entries to the partitions of one logical stream; made by [`PublisherBuilder::build_partitioned`].
///
/// Each partition has a [`Publisher`] of its own, with batches and a buffer of its own: in a cluster, a node that is away
/// holds up the entries of its partitions only. Where one server serves all keys, all share one connection.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use stream_core::Partitions;
/// use stream_redis::{Client, Publisher};
///
/// let client = Client::open("redis+cluster://n1:7000,n2:7000")?;
/// let orders = Partitions::new("orders", 16)?;
/// let publisher = Publisher::builder(&client).partitions(&orders).build_partitioned()?;
/// publisher.publish("customer-7", [("customer", "customer-7"), ("order", "17")]).await?;
/// assert!(publisher.close(Duration::from_secs(5)).await.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PartitionedPublisher {
    partitions: Partitions,
    publishers: Vec<Publisher>,
}

impl PartitionedPublisher {
    /// Appends an entry to the partition of `key`; its id when the server has confirmed it. Ids are unique within a
    /// partition only.
    ///
    /// The key is not written: consumers that need it, for their lanes for example, need a field that holds it.
    ///
    /// # Errors
    /// [`PublishError`], as of [`Publisher::publish`].
    pub fn publish<F, N, V>(
        &self,
        key: impl AsRef<[u8]>,
        fields: F,
    ) -> impl Future<Output = Result<EntryId, PublishError>> + Send + 'static
    where
        F: IntoIterator<Item = (N, V)>,
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.of(key).publish(fields)
    }

    /// Like [`publish`](Self::publish), for those who do not want to wait for each confirmation.
    ///
    /// # Errors
    /// [`PublishError`], when the entry was not accepted.
    pub fn enqueue<F, N, V>(
        &self,
        key: impl AsRef<[u8]>,
        fields: F,
    ) -> impl Future<Output = Result<Receipt, PublishError>> + Send + 'static
    where
        F: IntoIterator<Item = (N, V)>,
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.of(key).enqueue(fields)
    }

    /// The publisher of the partition that `key` belongs to.
    pub fn of(&self, key: impl AsRef<[u8]>) -> &Publisher {
        &self.publishers[self.partitions.of(key)]
    }

    /// The partitions.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// As [`Publisher::flush`], of all partitions.
    pub async fn flush(&self) {
        join_all(self.publishers.iter().map(Publisher::flush)).await;
    }

    /// Entries that are accepted and not confirmed yet.
    pub fn unconfirmed(&self) -> usize {
        self.publishers.iter().map(Publisher::unconfirmed).sum()
    }

    /// As [`Publisher::close`], of all partitions at once: takes no longer than `within`. What is left comes with the stream
    /// that it was for, in the order of each stream.
    pub async fn close(&self, within: Duration) -> Vec<(StreamKey, Unconfirmed)> {
        let left = join_all(self.publishers.iter().map(|publisher| publisher.close(within))).await;
        let of = |(key, left): (&StreamKey, Vec<Unconfirmed>)| {
            let key = key.clone();
            left.into_iter().map(move |unconfirmed| (key.clone(), unconfirmed))
        };
        self.partitions.keys().iter().zip(left).flat_map(of).collect()
    }
}

impl PublisherBuilder {
    /// The partitions to append to, in place of a stream; then [`build_partitioned`](Self::build_partitioned) starts it.
    /// Everything else is for each partition: its batches, its buffer, its bound.
    pub fn partitions(mut self, partitions: &Partitions) -> Self {
        self.partitions = Some(partitions.clone());
        self
    }

    /// Starts a publisher for all partitions. It connects when the first entry is published.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when there are no partitions or a stream was named as well, or a value is out of its range.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn build_partitioned(mut self) -> Result<PartitionedPublisher, Error> {
        let (partitions, builders) = self.each()?;
        if self.client.connector().serves_all_keys() {
            self.client = Client::from_connector(Joint::new(&self.client));
        }
        let client = &self.client;
        let publishers = builders.map(|builder| PublisherBuilder { client: client.clone(), ..builder }.build());
        Ok(PartitionedPublisher { publishers: publishers.collect::<Result<_, _>>()?, partitions })
    }

    /// The partitions, and a builder for each.
    fn each(&self) -> Result<(Partitions, impl Iterator<Item = Self> + use<>), Error> {
        let Some(partitions) = self.partitions.clone() else {
            let message = "a partitioned publisher needs partitions: name them with `.partitions(..)`";
            return Err(Error::new(ErrorKind::Config, message));
        };
        if self.stream.is_some() {
            let message = "a publisher has either a stream or partitions: leave `.stream(..)` out";
            return Err(Error::new(ErrorKind::Config, message));
        }
        let one = Self { partitions: None, ..self.clone() };
        let keys = partitions.clone();
        let builders = (0..partitions.count()).map(move |number| one.clone().stream(keys.key(number)));
        Ok((partitions, builders))
    }

    pub(super) fn check_partitions(&self) -> Result<(), Error> {
        let (_, mut builders) = self.each()?;
        builders.next().map_or(Ok(()), |builder| builder.check())
    }
}
