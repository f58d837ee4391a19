//! A listener to events: it reads earlier entries from the log, and receives new ones from the hub.

use super::hub::{Heard, PAGE};
use super::news::{self, EventId, Letter, News, Report};
use crate::redfish::filter::Filter;
use poolwright_service::Composer;
use poolwright_service::subscription::Chosen;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// What somebody wants to hear.
pub(super) enum Wish {
    Filter(Option<Filter>),
    Chosen(Chosen),
}

impl Wish {
    fn takes(&self, facets: &Value) -> bool {
        match self {
            Self::Filter(filter) => filter.as_ref().is_none_or(|filter| filter.takes(facets)),
            Self::Chosen(chosen) => {
                let is = |list: &[String], facet: &str| {
                    list.is_empty() || list.iter().any(|one| facets[facet] == one.as_str())
                };
                let format = if chosen.reports { "MetricReport" } else { "Event" };
                facets["EventFormatType"] == format
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
    outbox: Outbox,
    heard: Receiver<Heard>,
}

impl Ear {
    /// Hears what comes after an entry of the log. `heard` must have been there before that was the last one.
    pub fn new(composer: Composer, heard: Receiver<Heard>, wish: Wish, after: u64) -> Self {
        Self {
            composer,
            outbox: Outbox::new(wish, after),
            heard,
        }
    }

    /// Hears what comes after an event.
    pub fn after(mut self, seen: EventId) -> Self {
        self.outbox.upto = seen.seq.saturating_sub(1);
        self.outbox.seen = Some(seen);
        self
    }

    /// The last entry of the log up to which all messages were taken. The caller may not have sent the last one yet.
    pub fn upto(&self) -> u64 {
        self.outbox.upto()
    }

    /// Has a report sent as soon as the log is.
    pub fn take_report(&mut self, report: Arc<Report>) {
        self.outbox.take_report(report);
    }

    /// What was wanted next. It may be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Letter, Ended> {
        loop {
            if let Some(next) = self.outbox.next() {
                return Ok(next);
            }
            match self.outbox.behind {
                true => self.catch_up().await?,
                false => {
                    let heard = self.heard.recv().await;
                    self.hear(heard)?;
                }
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), Ended> {
        let happened = self.composer.happened_after(self.outbox.upto, PAGE).await;
        let happened = happened.map_err(|_| Ended::Silent)?;
        self.outbox.behind = happened.upto > self.outbox.upto;
        let news: Vec<News> = happened.all.iter().flat_map(news::of).collect();
        self.outbox.take(&news, happened.upto);
        Ok(())
    }

    fn hear(&mut self, heard: Result<Heard, RecvError>) -> Result<(), Ended> {
        match heard {
            Ok(Heard::Log { after, upto, news }) => {
                self.outbox.hear(after, upto, &news);
                Ok(())
            }
            Ok(Heard::Report(report)) => {
                self.outbox.take_report(report);
                Ok(())
            }
            Err(RecvError::Lagged(_)) => Err(Ended::TooSlow),
            Err(RecvError::Closed) => Err(Ended::Silent),
        }
    }
}

/// Messages for one listener. The same entry or report may come in twice, out of the log and from the hub, and a report
/// before the entries that it was made after.
///
/// Invariant: the ids of sent messages increase.
struct Outbox {
    wish: Wish,
    /// The last entry of the log that was looked at.
    upto: u64,
    /// The last event that the client has already.
    seen: Option<EventId>,
    /// The log may have entries that were not read.
    behind: bool,
    waiting: VecDeque<Letter>,
    /// Sent once the log is read to its end.
    report: Option<Arc<Report>>,
    /// The number of the last report that came in.
    reported: u64,
}

impl Outbox {
    fn new(wish: Wish, after: u64) -> Self {
        Self {
            wish,
            upto: after,
            seen: None,
            behind: true,
            waiting: VecDeque::new(),
            report: None,
            reported: 0,
        }
    }

    fn upto(&self) -> u64 {
        match self.waiting.front() {
            None => self.upto,
            Some(next) => next.id.seq.saturating_sub(1),
        }
    }

    fn next(&mut self) -> Option<Letter> {
        let waiting = self.waiting.pop_front();
        waiting.or_else(|| {
            let report = self.report.take_if(|_| !self.behind)?;
            Some(report.behind(self.upto))
        })
    }

    fn hear(&mut self, after: u64, upto: u64, news: &[News]) {
        self.behind = after > self.upto;
        if !self.behind && upto > self.upto {
            self.take(news, upto);
        }
    }

    /// Takes the new and wanted ones of the entries up to a number.
    fn take(&mut self, news: &[News], upto: u64) {
        for one in news {
            let id = one.letter.id;
            let is_new = id.seq > self.upto && self.seen.is_none_or(|seen| id > seen);
            if is_new && self.wish.takes(&one.facets) {
                self.waiting.push_back(one.letter.clone());
            }
        }
        self.upto = upto;
    }

    fn take_report(&mut self, report: Arc<Report>) {
        if report.number() > self.reported {
            self.reported = report.number();
            self.report = self.wish.takes(&report.facets).then_some(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_service::{Happening, TestEvent, What};
    use serde_json::json;

    fn entry(seq: u64) -> Vec<News> {
        let test = TestEvent {
            message_id: "ResourceEvent.1.4.TestMessage".to_owned(),
            ..TestEvent::default()
        };
        news::of(&Happening {
            seq,
            at: "2026-03-02T12:00:00Z".parse().unwrap(),
            what: What::Test(test),
        })
    }

    fn report(number: u64) -> Arc<Report> {
        let facets = json!({ "EventFormatType": "MetricReport" });
        Arc::new(Report::new(number, facets, &json!({})))
    }

    /// The ids of all messages that are sent now.
    fn sent(outbox: &mut Outbox) -> Vec<String> {
        let sent = std::iter::from_fn(|| outbox.next());
        let id = |letter: Letter| {
            let text = String::from_utf8(letter.streamed.to_vec()).unwrap();
            text["id: ".len()..].lines().next().unwrap().to_owned()
        };
        sent.map(id).collect()
    }

    fn caught_up(after: u64) -> Outbox {
        let mut outbox = Outbox::new(Wish::Filter(None), after);
        outbox.behind = false;
        outbox
    }

    /// Fault 86: two events of one stream have one id, or a report comes before an entry that is older.
    #[test]
    fn a_report_that_comes_in_twice_goes_out_once() {
        let mut outbox = caught_up(7);
        outbox.take_report(report(100));
        assert_eq!(sent(&mut outbox), ["7.report-100"]);
        outbox.take_report(report(100));
        outbox.take_report(report(99));
        assert!(sent(&mut outbox).is_empty());
        outbox.take_report(report(101));
        assert_eq!(sent(&mut outbox), ["7.report-101"]);
    }

    /// Fault 86: the listener read the log further than the hub had when it made the report.
    #[test]
    fn a_report_goes_out_behind_all_that_was_sent_before_it() {
        let mut outbox = Outbox::new(Wish::Filter(None), 5);
        outbox.take_report(report(100));
        assert!(sent(&mut outbox).is_empty(), "entries of the log are before it");
        let log: Vec<News> = [6, 7, 8].into_iter().flat_map(entry).collect();
        outbox.take(&log, 8);
        assert_eq!(sent(&mut outbox), ["6.0", "7.0", "8.0"]);
        outbox.behind = false;
        assert_eq!(sent(&mut outbox), ["8.report-100"]);
        // The hub sends entries that the listener has read itself.
        outbox.hear(5, 7, &log[..2]);
        let later: Vec<News> = [8, 9].into_iter().flat_map(entry).collect();
        outbox.hear(7, 9, &later);
        assert_eq!(sent(&mut outbox), ["9.0"]);
    }
}
