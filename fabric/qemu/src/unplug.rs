//! Taking a device out of a guest: the guest's kernel has to let go of it, and may take its time.

use crate::lab::Host;
use crate::look::connect;
use crate::monitor::{Monitor, Trouble, Unplugged};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// QEMU serves one client at a time: so long is one connection held while a guest takes its time …
const HELD: Duration = Duration::from_millis(500);
/// … and so long the socket is left to others then.
const LEFT: Duration = Duration::from_millis(100);

const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The guest let go of it, or is gone with it.
    Out,
    /// QEMU or the guest said no.
    Refused(String),
    /// It may happen yet.
    Pending(String),
}

/// Asks for a device that is plugged in, and waits until it is out.
pub(crate) async fn unplug(monitor: Monitor, host: &Host, device: &str, end: Instant) -> Ended {
    let monitor = match ask(monitor, host, device, end).await {
        Ok(monitor) => monitor,
        Err(ended) => return ended,
    };
    let mut held = Some(monitor);
    loop {
        let waited = match held.take() {
            Some(monitor) => wait_a_little(monitor, device, end).await,
            None => look_again(host, device, end).await,
        };
        match waited {
            Waited::Ended(ended) => return ended,
            Waited::On(monitor) => held = monitor,
        }
        if Instant::now() >= end {
            let message = "the guest has not let go of it in time, and may do so yet".to_owned();
            return Ended::Pending(message);
        }
        if held.is_none() {
            sleep_until(end.min(Instant::now() + LEFT)).await;
        }
    }
}

/// Asks until the guest listens: while a kernel powers a slot on, its indicator blinks, and QEMU refuses for it.
async fn ask(mut monitor: Monitor, host: &Host, device: &str, end: Instant) -> Result<Monitor, Ended> {
    loop {
        let asked = timeout_at(end, monitor.execute("device_del", json!({ "id": device }))).await;
        let busy = match asked {
            Ok(Ok(_)) => return Ok(monitor),
            // Somebody asked before: what is waited for is the same.
            Ok(Err(Trouble::Refused(why))) if why.contains("in the process of unplug") => return Ok(monitor),
            Ok(Err(Trouble::Refused(why))) if why.contains("guest is busy") => why,
            Ok(Err(Trouble::Refused(why))) => return Err(Ended::Refused(why)),
            Ok(Err(Trouble::Off(why) | Trouble::Lost(why))) => {
                return Err(Ended::Pending(format!("no answer to device_del: {why}")));
            }
            Err(_) => return Err(Ended::Pending("no answer to device_del in time".to_owned())),
        };
        drop(monitor);
        sleep_until(end.min(Instant::now() + LEFT)).await;
        monitor = match timeout_at(end, connect(host)).await {
            Ok(Ok(monitor)) => monitor,
            Ok(Err(Trouble::Off(_))) => return Err(Ended::Out),
            Ok(Err(_)) | Err(_) => return Err(Ended::Refused(busy)),
        };
    }
}

enum Waited {
    Ended(Ended),
    /// Not yet.
    On(Option<Monitor>),
}

async fn wait_a_little(mut monitor: Monitor, device: &str, end: Instant) -> Waited {
    let until = end.min(Instant::now() + HELD);
    while Instant::now() < until {
        // QEMU tells it some time after the device is out: it is looked for, too.
        let told = timeout(BETWEEN_LOOKS, monitor.until_unplugged(device)).await;
        let there = match told {
            Ok(Ok(Unplugged::Gone)) => Ok(Ok(false)),
            Ok(Ok(Unplugged::Refused)) => {
                let message = "the guest refuses to let go of it".to_owned();
                return Waited::Ended(Ended::Refused(message));
            }
            Ok(Err(trouble)) => Ok(Err(trouble)),
            Err(_) => timeout_at(until, monitor.has(device)).await,
        };
        match there {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Waited::Ended(Ended::Out),
            // Whoever looks next sees why.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    Waited::On(None)
}

async fn look_again(host: &Host, device: &str, end: Instant) -> Waited {
    let look = async {
        let mut monitor = connect(host).await?;
        let there = monitor.has(device).await?;
        Ok((monitor, there))
    };
    let left = end.saturating_duration_since(Instant::now());
    match timeout(left, look).await {
        Ok(Ok((_, false)) | Err(Trouble::Off(_))) => Waited::Ended(Ended::Out),
        Ok(Ok((monitor, true))) => Waited::On(Some(monitor)),
        Ok(Err(_)) | Err(_) => Waited::On(None),
    }
}
