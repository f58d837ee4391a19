//! What a client may take, known or not: connections, and the memory and time of a request's head and body.
//!
//! Invariant: whoever says nothing, or too slowly, or does not read what it is told, holds a connection for a bounded time.

use axum::body::{Body, Bytes, HttpBody};
use futures_util::StreamExt;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use poolwright_service::accounts::Source;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Headers of a request, and the bytes of its head.
const MOST_HEADERS: usize = 100;
const LARGEST_HEAD: u32 = 64 << 10;
/// Requests side by side on a connection of HTTP/2.
const MOST_STREAMS: u32 = 128;

/// Of a body that is too long anyway.
const MOST_THROWN_AWAY: usize = 32 << 20;

/// What differs in tests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time; one more is closed at once.
    pub connections: usize,
    /// Of them those of one address, so that no client has them all.
    pub connections_of_one: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long the head of a request may take, also of the next one on the same connection.
    pub head: Duration,
    /// How long a body may take.
    pub body: Duration,
    /// How long a question may wait until there is room to read it.
    pub room: Duration,
    /// How long nothing may come or go on a connection: longer than any request may take.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            connections_of_one: 256,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            body: Duration::from_secs(60),
            room: Duration::from_secs(10),
            idle: Duration::from_secs(360),
        }
    }
}

/// Sets what the head of a request may take.
pub(crate) fn bound(builder: &mut Builder<TokioExecutor>, limits: Limits) {
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_headers(MOST_HEADERS)
        .max_buf_size(LARGEST_HEAD as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(LARGEST_HEAD);
}

/// Memory for a body before any of it has come.
const FIRST_ROOM: usize = 64 << 10;

/// Why a body is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLong,
    /// It broke off, or took too long.
    BrokeOff,
}

/// Reads a whole body. Discards more of a body that is too long: a client that is still sending may miss the answer.
pub(crate) async fn read(body: Body, most: usize, within: Duration) -> Result<Bytes, Unread> {
    let said = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut too_long = said > most;
    // A header alone reserves little: the body may never come.
    let mut kept = Vec::with_capacity(if too_long { 0 } else { said.min(FIRST_ROOM) });
    let mut parts = body.into_data_stream();
    let all = async {
        let mut length = 0;
        while let Some(part) = parts.next().await {
            let part = part.map_err(|_| Unread::BrokeOff)?;
            length += part.len();
            too_long |= length > most;
            match too_long {
                false => kept.extend_from_slice(&part),
                true if length > most.saturating_mul(16).min(MOST_THROWN_AWAY) => break,
                true => kept = Vec::new(),
            }
        }
        Ok::<(), Unread>(())
    };
    match (tokio::time::timeout(within, all).await, too_long) {
        (_, true) => Err(Unread::TooLong),
        (Ok(Ok(())), false) => Ok(kept.into()),
        (_, false) => Err(Unread::BrokeOff),
    }
}

/// Places for connections.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    taken: Arc<Mutex<Taken>>,
    limits: Limits,
}

#[derive(Debug, Default)]
struct Taken {
    all: Count,
    of: HashMap<Source, Count>,
}

#[derive(Debug, Default)]
struct Count {
    open: usize,
    /// It was told that there are no more.
    told: bool,
}

impl Count {
    fn is_full(&self, most: usize) -> bool {
        self.open >= most
    }

    fn one_more(&mut self) {
        self.open += 1;
        self.told = false;
    }
}

/// One of them.
pub(crate) struct Place {
    of: Source,
    taken: Arc<Mutex<Taken>>,
    limits: Limits,
}

impl Places {
    pub fn new(limits: Limits) -> Self {
        Self {
            taken: Arc::default(),
            limits,
        }
    }

    /// A place for a connection from an address, if one is free.
    pub fn take(&self, from: IpAddr) -> io::Result<Place> {
        let (of, limits) = (Source::of(from), self.limits);
        let mut taken = lock(&self.taken);
        let Taken { all, of: by_client } = &mut *taken;
        if all.is_full(limits.connections) {
            if !std::mem::replace(&mut all.told, true) {
                let most = limits.connections;
                tracing::warn!(
                    most,
                    "as many connections are open as there may be: more are closed at once"
                );
            }
            return Err(io::Error::other("no place for another connection"));
        }
        let own = by_client.entry(of).or_default();
        if own.is_full(limits.connections_of_one) {
            if !std::mem::replace(&mut own.told, true) {
                let most = limits.connections_of_one;
                tracing::warn!(%of, most, "an address has as many connections as one may have: more are closed at once");
            }
            return Err(io::Error::other("no place for another connection from there"));
        }
        own.one_more();
        all.one_more();
        Ok(Place {
            of,
            taken: self.taken.clone(),
            limits,
        })
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.all.open = taken.all.open.saturating_sub(1);
        if let Entry::Occupied(mut own) = taken.of.entry(self.of) {
            own.get_mut().open = own.get().open.saturating_sub(1);
            if own.get().open == 0 {
                own.remove();
            }
        }
    }
}

impl Place {
    /// A connection that keeps this place for as long as it lasts.
    pub fn bounded<S>(self, stream: S) -> Bounded<S> {
        let now = Instant::now();
        Bounded {
            stream,
            last: now,
            allowed: self.limits.head,
            over: Box::pin(tokio::time::sleep_until(now + self.limits.head)),
            place: self,
        }
    }
}

/// A connection that fails when nothing came or went for too long.
pub(crate) struct Bounded<S> {
    stream: S,
    /// When something came or went last.
    last: Instant,
    /// How long nothing may: until the first byte came, no longer than a head may take.
    allowed: Duration,
    over: Pin<Box<Sleep>>,
    place: Place,
}

impl<S> Bounded<S> {
    /// Notes that something came or went, or fails if nothing did for too long.
    fn watched<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.last = Instant::now();
            return done;
        }
        while self.over.as_mut().poll(cx).is_ready() {
            let until = self.last + self.allowed;
            if until <= Instant::now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.over.as_mut().reset(until);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let idle = self.place.limits.idle;
        if buf.filled().len() > before && self.allowed != idle {
            self.allowed = idle;
            self.over.as_mut().reset(Instant::now() + idle);
        }
        self.watched(cx, read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watched(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watched(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // Flushing is polled over and over with nothing to flush: that is no sign of life.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.watched(cx, Poll::Pending),
            flushed => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watched(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_has_its_share_leaves_the_others_theirs() {
        let places = Places::new(Limits {
            connections: 5,
            connections_of_one: 2,
            ..Limits::default()
        });
        let take = |address: &str| places.take(address.parse().unwrap());
        let (one, two) = (take("192.0.2.1").unwrap(), take("::ffff:192.0.2.1").unwrap());
        assert!(
            take("192.0.2.1").is_err(),
            "an address is one however it is written"
        );
        let (six, last) = (take("2001:db8::1").unwrap(), take("2001:db8::2:0:0:2").unwrap());
        assert!(
            take("2001:db8::3").is_err(),
            "all addresses of a network are one client's"
        );
        drop(one);
        let other = take("2001:db8:0:1::1").unwrap();
        let again = take("192.0.2.1").unwrap();
        assert!(take("192.0.2.2").is_err(), "there are five in all");
        drop((two, six, last, other, again));
        assert!(
            lock(&places.taken).of.is_empty(),
            "nobody is remembered who has none"
        );
    }
}
