//! Reading a body of unknown size from a peer that is not trusted: never more than the cap in memory, never longer
//! than the deadline.

use bytes::{Bytes, BytesMut};

use super::classify;
use super::deadline::Deadline;
use super::error::Unreadable;

/// Why a body was not read to its end.
pub(crate) enum BodyFault {
    Unusable(Unreadable),
    Deadline { got: usize },
}

/// The whole body, at most `cap` bytes. The usual small body is one chunk and is not copied.
pub(crate) async fn read(
    response: &mut reqwest::Response,
    cap: usize,
    deadline: Deadline,
) -> Result<Bytes, BodyFault> {
    let too_large = || BodyFault::Unusable(Unreadable::TooLarge { limit: cap });
    let announced = response
        .content_length()
        .and_then(|length| usize::try_from(length).ok());
    if announced.is_some_and(|length| length > cap) {
        return Err(too_large());
    }
    let Some(first) = chunk(response, 0, deadline).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > cap {
        return Err(too_large());
    }
    let Some(second) = chunk(response, first.len(), deadline).await? else {
        return Ok(first);
    };
    let mut whole = BytesMut::with_capacity(announced.unwrap_or(0).max(first.len() + second.len()));
    whole.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(piece) = next {
        if whole.len() + piece.len() > cap {
            return Err(too_large());
        }
        whole.extend_from_slice(&piece);
        next = chunk(response, whole.len(), deadline).await?;
    }
    Ok(whole.freeze())
}

async fn chunk(
    response: &mut reqwest::Response,
    got: usize,
    deadline: Deadline,
) -> Result<Option<Bytes>, BodyFault> {
    match tokio::time::timeout_at(deadline.at(), response.chunk()).await {
        Ok(Ok(chunk)) => Ok(chunk),
        Ok(Err(e)) => Err(BodyFault::Unusable(Unreadable::CutOff {
            got,
            why: classify::innermost(&e.without_url()),
        })),
        Err(_) => Err(BodyFault::Deadline { got }),
    }
}
