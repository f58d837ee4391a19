//! Server-sent events: that something is told, and not what. A stream holds none of the slots for requests, keeps
//! nothing of what comes, and is over when nothing comes for long.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::deadline::Deadline;
use super::error::{Error, ErrorKind, Result};
use super::exchange::Request;
use super::{Client, settle};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

impl Client {
    /// Opens a stream and reads it to its end, or until nothing came for as long as `silence`. `told` is called when it
    /// is open, and for each part of it with an event.
    pub async fn stream(&self, path: &str, silence: Duration, told: &(dyn Fn() + Send + Sync)) -> Result<()> {
        let mut response = self.open_stream(path).await?;
        told();
        let mut lines = Lines::default();
        // However it ends, whoever wants to hear more opens another.
        while let Ok(Ok(Some(part))) = tokio::time::timeout(silence, response.chunk()).await {
            if lines.tell(&part) {
                told();
            }
        }
        Ok(())
    }

    async fn open_stream(&self, path: &str) -> Result<reqwest::Response> {
        let wire = &self.0.wire;
        let place = self.place(path, "GET")?;
        let request = Request::get(&place, self.limits().answer_bytes);
        let _slot = wire.slot().await;
        let ticket = self.0.gate.ticket(wire, &request, self.1).await?;
        let deadline = Deadline::after(self.limits().request);
        let sent = wire.sent(&request, ticket.credential(), Some(EVENT_STREAM), deadline);
        let response = sent.await?;
        if response.status().is_success() {
            self.0.gate.judge_result(ticket, &request, Ok(()))?;
            return Ok(response);
        }
        // The next request opens the session again.
        if response.status() == StatusCode::UNAUTHORIZED && ticket.may_have_lapsed() {
            return Err(Error::harmless(request.name(), ErrorKind::SessionEnded));
        }
        let outcome = wire.receive(&request, response, deadline).await;
        let reply = settle(&request, self.0.gate.judge(ticket, &request, outcome)?)?;
        // Neither good nor an error: nothing that a stream begins with.
        Err(request.refused(&reply))
    }
}

/// Where in a line the stream is: after so many letters of `data`, or past where it could be that.
#[derive(Debug)]
struct Lines(Option<usize>);

impl Default for Lines {
    fn default() -> Self {
        Self(Some(0))
    }
}

impl Lines {
    /// Whether a line with data has begun in this part.
    fn tell(&mut self, part: &[u8]) -> bool {
        const DATA: &[u8] = b"data";
        let mut told = false;
        for byte in part {
            self.0 = match (byte, self.0) {
                (b'\n' | b'\r', _) => Some(0),
                (byte, Some(at)) if DATA.get(at) == Some(byte) => {
                    told |= at + 1 == DATA.len();
                    Some(at + 1)
                }
                _ => None,
            };
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_with_data_tell_something_however_they_are_cut() {
        let told = |parts: &[&str]| {
            let mut lines = Lines::default();
            parts.iter().filter(|part| lines.tell(part.as_bytes())).count()
        };
        assert_eq!(told(&["data: {}\n\n"]), 1);
        assert_eq!(told(&["id: 1\r\nda", "ta: {}", "\n\n"]), 1);
        assert_eq!(told(&["data: 1\n", "data: 2\n"]), 2);
        assert_eq!(
            told(&[": data\n", "id: data\n", " data: no\n", "dat", "\na: no\n"]),
            0
        );
    }
}
