//! Reading a body of unknown size from a peer that is not trusted: never more than the cap in memory, never longer
//! than the deadline. Some services send gzip unasked: the cap holds for the unpacked body, too.

use std::io::Read as _;

use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http::header::CONTENT_ENCODING;

use super::classify;
use super::deadline::Deadline;
use super::error::Unreadable;
use super::message;

/// Why a body was not read to its end.
pub(crate) enum BodyFault {
    Unusable(Unreadable),
    Deadline { got: usize },
}

/// The whole body, unpacked, at most `cap` bytes.
pub(crate) async fn read(
    response: &mut reqwest::Response,
    cap: usize,
    deadline: Deadline,
) -> Result<Bytes, BodyFault> {
    let coding = response
        .headers()
        .get(CONTENT_ENCODING)
        .map(|coding| String::from_utf8_lossy(coding.as_bytes()).to_ascii_lowercase());
    match coding.as_deref() {
        None | Some("" | "identity") => as_sent(response, cap, deadline).await,
        Some("gzip" | "x-gzip") => {
            let packed = as_sent(response, cap, deadline).await?;
            unpacked(&packed, cap).map_err(BodyFault::Unusable)
        }
        Some(other) => Err(BodyFault::Unusable(Unreadable::Compressed(message::printable(
            other,
        )))),
    }
}

/// Unpacks gzip. An empty body stays empty: some services mark it as gzip, too.
fn unpacked(packed: &[u8], cap: usize) -> Result<Bytes, Unreadable> {
    if packed.is_empty() {
        return Ok(Bytes::new());
    }
    let one_more = u64::try_from(cap).unwrap_or(u64::MAX).saturating_add(1);
    let mut body = Vec::new();
    MultiGzDecoder::new(packed)
        .take(one_more)
        .read_to_end(&mut body)
        .map_err(|error| {
            Unreadable::Compressed(format!("gzip: {}", message::printable(&error.to_string())))
        })?;
    match body.len() > cap {
        true => Err(Unreadable::TooLarge { limit: cap }),
        false => Ok(body.into()),
    }
}

/// The usual small body is one chunk and is not copied.
async fn as_sent(
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
