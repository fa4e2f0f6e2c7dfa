//! Opening the reading socket of one stream, and what the server says of the stream.

use std::sync::Arc;

use stream_core::{EntryId, StartFrom, StreamFacts};
use stream_redis::command::{Time, XInfoStream, XLastEntry};
use stream_redis::{Error, ErrorKind, Reader};

use super::config::Start;
use super::stream::Stream;

/// What the server said when it was asked for the facts.
pub(super) enum Answer {
    Facts(Option<StreamFacts>),
    /// It may not be asked; for a start at the end, the id of the last entry.
    Denied(Error, Option<EntryId>),
}

pub(super) struct Prepared {
    pub(super) reader: Box<dyn Reader>,
    /// What the server says of the stream.
    pub(super) answer: Answer,
    /// Where to begin; `None` at the end, or when it has begun already.
    pub(super) start: Option<EntryId>,
}

/// Opens the reading socket, then asks for the facts: the start, or what became of the stream meanwhile.
pub(super) async fn prepare(stream: Arc<Stream>, first: bool, ask: bool) -> Result<Prepared, Error> {
    let name = format!("streamkeeper:{}", stream.source.consumer);
    let reader = stream.config.client.connector().open_reader(&stream.source.stream, &name).await?;
    let start = match (first, stream.resume, stream.config.start) {
        (false, ..) => None,
        (true, Some(id), _) => Some(id),
        (true, None, Start::From(from)) => from.after(),
        (true, None, Start::Ago(ago)) => {
            let since = stream.link.run(&Time).await?.saturating_sub(ago);
            StartFrom::Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)).after()
        }
    };
    let answer = if first || ask {
        facts(&stream, first && start.is_none()).await?
    } else {
        Answer::Denied(Error::new(ErrorKind::NoPermission, "the stream may not be asked about"), None)
    };
    Ok(Prepared { reader, answer, start })
}

/// What the server says of the stream; where it may not be asked, the id of the last entry if `end` is wanted.
pub(super) async fn facts(stream: &Stream, end: bool) -> Result<Answer, Error> {
    let key = &stream.source.stream;
    match stream.link.run(&XInfoStream { key: key.clone() }).await {
        Ok(info) => Ok(Answer::Facts(Some(info.facts()))),
        Err(error) if error.kind() == ErrorKind::Missing => Ok(Answer::Facts(None)),
        Err(error) if matches!(error.kind(), ErrorKind::NoPermission | ErrorKind::Unsupported) => {
            let last = if end { stream.link.run(&XLastEntry { key: key.clone() }).await? } else { None };
            Ok(Answer::Denied(error, last))
        }
        Err(error) => Err(error),
    }
}
