//! Who is bound where, of many units at once: a small part of an observation, and read far more often.

use crate::{Bound, ControlPoint, DriverError};
use futures_util::StreamExt;
use poolwright_model::fault::FaultKind;
use std::future::Future;
use std::time::Duration;

/// Units that are asked about side by side, where they are read one by one.
pub const AT_ONCE: usize = 4;

/// The longest that the answer about one unit is waited for.
const EACH: Duration = Duration::from_secs(30);

/// Where units are bound, read from the fabric just now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bindings {
    /// One for each unit that was asked for, in that order. `None`: the service has no such unit any more.
    pub units: Vec<Result<Option<Bound>, DriverError>>,
    /// Requests sent to learn it.
    pub requests: u64,
}

/// Reads units one by one, [`AT_ONCE`] at a time. An error of kind [`FaultKind::Missing`] says that there is no such
/// unit. Where the first few are not answered the rest is not asked: nobody is there.
pub async fn read_each<F>(
    units: &[ControlPoint],
    deadline: Duration,
    read: impl Fn(ControlPoint, Duration) -> F,
) -> Result<Bindings, DriverError>
where
    F: Future<Output = Result<Bound, DriverError>>,
{
    // The traits choose no clock: shared out like this the whole can't take longer than the deadline.
    let rounds = u32::try_from(units.len().div_ceil(AT_ONCE)).unwrap_or(u32::MAX);
    let each = EACH.min(deadline / rounds.max(1));
    let reads = units.iter().cloned().map(|unit| read(unit, each));
    // Each is begun when its turn comes, and not before.
    let mut reads = futures_util::stream::iter(reads).buffered(AT_ONCE);
    let mut read = Vec::with_capacity(units.len());
    let mut answered = false;
    while let Some(unit) = reads.next().await {
        let unit = match unit {
            Ok(bound) => Ok(Some(bound)),
            Err(error) if error.fault == FaultKind::Missing => Ok(None),
            Err(error) => Err(error),
        };
        answered |= unit.is_ok();
        read.push(unit);
        if !answered && (read.len() == units.len() || read.len() >= AT_ONCE) {
            return match read.swap_remove(0) {
                Err(error) => Err(error),
                Ok(_) => Err(DriverError::no_effect("no unit could be read")),
            };
        }
    }
    Ok(Bindings {
        requests: read.len() as u64,
        units: read,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_model::control::ControlStyle;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tokio::time::Instant;

    const ANSWER: Duration = Duration::from_millis(500);

    fn units(count: usize) -> Vec<ControlPoint> {
        let unit = |at| ControlPoint {
            endpoint: "box".parse().unwrap(),
            style: ControlStyle::Zones,
            address: format!("/{at}"),
        };
        (0..count).map(unit).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_are_asked_side_by_side_and_never_more() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (units, began) = (units(64), Instant::now());
        let read = read_each(&units, Duration::from_secs(300), |unit, _| {
            let (now, most) = (&now, &most);
            async move {
                most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
                tokio::time::sleep(ANSWER).await;
                now.fetch_sub(1, Relaxed);
                match unit.address.as_str() {
                    "/7" => Err(DriverError::no_effect("gone").with_fault(FaultKind::Missing)),
                    "/9" => Err(DriverError::no_effect("garbled")),
                    _ => Ok(Bound::Free),
                }
            }
        });
        let read = read.await.unwrap();
        assert_eq!(most.into_inner(), AT_ONCE);
        assert_eq!(began.elapsed(), ANSWER * 64 / 4);
        assert_eq!((read.units.len(), read.requests), (64, 64));
        assert_eq!(read.units[7], Ok(None), "it is not there");
        assert!(read.units[9].is_err(), "nobody knows");
        assert!(read.units[10].is_ok(), "and the others are read all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_asked_for_ever() {
        let (asked, units) = (AtomicUsize::new(0), units(64));
        let error = read_each(&units, Duration::from_secs(300), |_, left| {
            asked.fetch_add(1, Relaxed);
            async move {
                tokio::time::sleep(left).await;
                Err(DriverError::no_effect("no answer").with_fault(FaultKind::Timeout))
            }
        });
        let began = Instant::now();
        assert_eq!(error.await.unwrap_err().fault, FaultKind::Timeout);
        assert!(asked.into_inner() <= 2 * AT_ONCE);
        assert!(began.elapsed() <= Duration::from_secs(300) / 16);
    }
}
