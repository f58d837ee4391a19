//! One who hears what happens: what it missed it reads in the log, what comes it hears at the hub.

use super::hub::{Heard, PAGE};
use super::news::{self, EventId, Letter, News};
use crate::redfish::filter::Filter;
use axum::body::Bytes;
use poolwright_service::Composer;
use poolwright_service::subscription::Chosen;
use std::collections::VecDeque;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// What somebody wants to hear.
pub(super) enum Wish {
    Filter(Option<Filter>),
    Chosen(Chosen),
}

impl Wish {
    fn takes(&self, news: &News) -> bool {
        match self {
            Self::Filter(filter) => filter.as_ref().is_none_or(|filter| filter.takes(&news.facets)),
            Self::Chosen(chosen) => {
                let is = |list: &[String], facet: &str| {
                    list.is_empty() || list.iter().any(|one| news.facets[facet] == one.as_str())
                };
                let format = if chosen.reports { "MetricReport" } else { "Event" };
                news.facets["EventFormatType"] == format
                    && is(&chosen.registry_prefixes, "RegistryPrefix")
                    && is(&chosen.resource_types, "ResourceType")
                    && is(&chosen.message_ids, "MessageId")
                    && is(&chosen.event_types, "EventType")
                    && is(&chosen.origin_resources, "OriginResource")
            }
        }
    }
}

/// Why nothing more is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// More came than could wait.
    TooSlow,
    /// The store does not answer, or the manager stops.
    Silent,
}

pub(super) struct Ear {
    composer: Composer,
    wish: Wish,
    /// The last entry of the log that was looked at.
    upto: u64,
    /// What was heard before.
    seen: Option<EventId>,
    /// Something may be in the log that was not heard.
    behind: bool,
    waiting: VecDeque<Letter>,
    /// The last report taken, to drop a duplicate: the opener of an ear passes it a report, and the hub may send the
    /// same.
    report: Option<Bytes>,
    heard: Receiver<Heard>,
}

impl Ear {
    /// Hears what comes after an entry of the log. `heard` must have been there before that was the last one.
    pub fn new(composer: Composer, heard: Receiver<Heard>, wish: Wish, after: u64) -> Self {
        Self {
            composer,
            wish,
            upto: after,
            seen: None,
            behind: true,
            waiting: VecDeque::new(),
            report: None,
            heard,
        }
    }

    /// Hears what comes after an event.
    pub fn after(mut self, seen: EventId) -> Self {
        self.upto = seen.seq.saturating_sub(1);
        self.seen = Some(seen);
        self
    }

    /// The entry up to which all that was wanted was given to whoever asks, once that has dealt with the last of it.
    pub fn upto(&self) -> u64 {
        match self.waiting.front() {
            None => self.upto,
            Some(next) => next.id.seq.saturating_sub(1),
        }
    }

    /// What was wanted next. It may be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Letter, Ended> {
        loop {
            if let Some(next) = self.waiting.pop_front() {
                return Ok(next);
            }
            match self.behind {
                true => self.catch_up().await?,
                false => {
                    let heard = self.heard.recv().await;
                    self.hear(heard)?;
                }
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), Ended> {
        let happened = self.composer.happened_after(self.upto, PAGE).await;
        let happened = happened.map_err(|_| Ended::Silent)?;
        self.behind = happened.upto > self.upto;
        let news: Vec<News> = happened.all.iter().flat_map(news::of).collect();
        self.take(&news);
        self.upto = happened.upto;
        Ok(())
    }

    fn hear(&mut self, heard: Result<Heard, RecvError>) -> Result<(), Ended> {
        match heard {
            Ok(Heard::Log { after, upto, news }) => {
                self.behind = after > self.upto;
                if !self.behind && upto > self.upto {
                    self.take(&news);
                    self.upto = upto;
                }
                Ok(())
            }
            Ok(Heard::Report(news)) => {
                self.take(std::slice::from_ref(&*news));
                Ok(())
            }
            Err(RecvError::Lagged(_)) => Err(Ended::TooSlow),
            Err(RecvError::Closed) => Err(Ended::Silent),
        }
    }

    /// Takes what is wanted and was not known yet.
    pub fn take(&mut self, news: &[News]) {
        for one in news {
            let id = one.letter.id;
            // A report is of no entry.
            let is_new = match id.part {
                u32::MAX => {
                    self.report.replace(one.letter.streamed.clone()).as_ref() != Some(&one.letter.streamed)
                }
                _ => id.seq > self.upto && self.seen.is_none_or(|seen| id > seen),
            };
            if is_new && self.wish.takes(one) {
                self.waiting.push_back(one.letter.clone());
            }
        }
    }
}
