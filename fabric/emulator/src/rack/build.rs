//! From counts to things: names, numbers, cables; and the checks on the way.

use super::file::{Cabling, RawBox, RawGpus, RawHost, RawLink, RawRack, Style};
use super::{
    BoxIx, Gpu, GpuBox, GpuIx, Home, Host, HostIx, HostPort, Identity, Latency, Options, PortIx, Rack,
    RackError, Switch,
};
use crate::fault::UnknownName;
use poolwright_model::profile::{GpuKind, Profiles};
use poolwright_model::units::{LinkWidth, PcieGeneration};
use std::collections::BTreeMap;
use std::time::Duration;

/// More would be a mistake in the file, not a rack.
const MOST_ENDPOINTS: usize = 16_384;
const MOST_GPUS: usize = 262_144;
const LONGEST: Duration = Duration::from_secs(3600);

pub(super) fn build(file: &str, raw: RawRack) -> Result<Rack, RackError> {
    let mut builder = Builder {
        file,
        numbers: BTreeMap::new(),
        rack: Rack {
            identity: Identity::new(&raw.name, raw.seed),
            name: raw.name,
            style: raw.style,
            options: Options {
                tasks: raw.options.tasks,
                box_knows_uuid: raw.options.box_knows_uuid,
                processors: raw.options.processors,
                zone_actions: raw.options.zone_actions,
                block_actions: raw.options.block_actions,
                reset_action: raw.options.reset_action,
                owner_mark: raw.options.owner_mark,
                locators: raw.options.locators,
                events: raw.options.events,
                pushes: raw.options.pushes,
                expand: raw.options.expand,
                max_sessions: raw.options.max_sessions,
                session_idle: raw.options.session_idle,
            },
            latency: Latency {
                request: raw.latency.request,
                bind: raw.latency.bind,
                unbind: raw.latency.unbind,
                enumeration: raw.latency.enumeration,
                reset: raw.latency.reset,
            },
            boxes: Vec::new(),
            hosts: Vec::new(),
            ports: Vec::new(),
            gpus: Vec::new(),
            prebound: Vec::new(),
            faults: raw.faults,
        },
    };
    builder.check_head()?;
    builder.check_size(&raw.boxes, &raw.hosts)?;
    for group in &raw.boxes {
        builder.boxes(group)?;
    }
    for group in &raw.hosts {
        builder.hosts(group)?;
    }
    for pair in &raw.prebound {
        builder.prebound(&pair.gpu, &pair.port)?;
    }
    builder.check_faults()?;
    Ok(builder.rack)
}

struct Builder<'a> {
    file: &'a str,
    rack: Rack,
    /// The last number given under each name: a second group of the same name goes on counting.
    numbers: BTreeMap<String, usize>,
}

impl Builder<'_> {
    fn wrong<T>(&self, key: &str, found: impl ToString, allowed: impl ToString) -> Result<T, RackError> {
        Err(RackError::Value {
            file: self.file.to_owned(),
            key: key.to_owned(),
            found: found.to_string(),
            allowed: allowed.to_string(),
        })
    }

    fn check_name(&self, key: &str, name: &str) -> Result<(), RackError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || name.len() > 40 || !name.chars().all(fits) {
            return self.wrong(key, format!("{name:?}"), "1 to 40 letters, digits and hyphens");
        }
        Ok(())
    }

    fn check_count(&self, key: &str, found: usize, least: usize, most: usize) -> Result<(), RackError> {
        if !(least..=most).contains(&found) {
            return self.wrong(key, found, format!("{least} to {most}"));
        }
        Ok(())
    }

    fn check_head(&self) -> Result<(), RackError> {
        self.check_name("name", &self.rack.name)?;
        self.check_count("options.max_sessions", self.rack.options.max_sessions, 0, 10_000)?;
        // DMTF's SessionTimeout counts whole seconds from 30 to a day.
        let idle = self.rack.options.session_idle;
        if !(30..=86_400).contains(&idle.as_secs()) || idle.subsec_nanos() != 0 {
            return self.wrong(
                "options.session_idle",
                format!("{idle:?}"),
                "whole seconds, 30s to 24h",
            );
        }
        if self.rack.style == Style::ResourceBlocks && !self.rack.options.processors {
            return self.wrong("options.processors", false, "true in style resource-blocks");
        }
        let Latency {
            request,
            bind,
            unbind,
            enumeration,
            reset,
        } = self.rack.latency;
        for (key, found) in [
            ("latency.request", request),
            ("latency.bind", bind),
            ("latency.unbind", unbind),
            ("latency.enumeration", enumeration),
            ("latency.reset", reset),
        ] {
            if found > LONGEST {
                return self.wrong(key, format!("{found:?}"), "up to 1h");
            }
        }
        Ok(())
    }

    fn check_size(&self, boxes: &[RawBox], hosts: &[RawHost]) -> Result<(), RackError> {
        let box_count: usize = boxes.iter().map(|group| group.count).sum();
        let host_count: usize = hosts.iter().map(|group| group.count).sum();
        self.check_count("box.count (of all boxes)", box_count, 1, MOST_ENDPOINTS)?;
        self.check_count("host.count (of all hosts)", host_count, 1, MOST_ENDPOINTS)?;
        let in_boxes = boxes
            .iter()
            .map(|group| group.count.saturating_mul(gpu_count(&group.gpus)));
        let gpus = in_boxes.fold(0, usize::saturating_add);
        self.check_count("gpus.count (of all boxes)", gpus, 1, MOST_GPUS)
    }

    /// The next name: `box-3`.
    fn number(&mut self, name: &str) -> String {
        let number = self.numbers.entry(name.to_owned()).or_default();
        *number += 1;
        format!("{name}-{number}")
    }

    fn link(&self, key: &str, raw: RawLink) -> Result<LinkWidth, RackError> {
        let Some(generation) = PcieGeneration::from_number(raw.generation) else {
            return self.wrong(&format!("{key}.generation"), raw.generation, "1 to 6");
        };
        if ![1, 2, 4, 8, 16].contains(&raw.lanes) {
            return self.wrong(&format!("{key}.lanes"), raw.lanes, "1, 2, 4, 8 or 16");
        }
        Ok(LinkWidth::new(generation, raw.lanes))
    }

    fn kind(&self, key: &str, name: &str, card: bool) -> Result<&'static GpuKind, RackError> {
        let all = Profiles::builtin().all();
        match all.iter().find(|kind| kind.name == name) {
            Some(kind) if kind.form_factor.is_card() == card => Ok(kind),
            _ => {
                let fitting = all.iter().filter(|kind| kind.form_factor.is_card() == card);
                let names: Vec<&str> = fitting.map(|kind| kind.name.as_str()).collect();
                let what = if card { "a card" } else { "a module on a baseboard" };
                self.wrong(key, format!("{name:?}"), format!("{what}: {}", names.join(", ")))
            }
        }
    }

    fn boxes(&mut self, group: &RawBox) -> Result<(), RackError> {
        self.check_name("box.name", &group.name)?;
        self.check_count("box.count", group.count, 1, MOST_ENDPOINTS)?;
        self.check_count("box.switches", group.switches, 1, 64)?;
        let count = gpu_count(&group.gpus);
        self.check_count("box.gpus.count (of one box)", count, 1, 256)?;
        let mut kinds = Vec::with_capacity(count);
        for gpus in &group.gpus {
            let kind = self.kind("box.gpus.kind", &gpus.kind, true)?;
            kinds.extend(std::iter::repeat_n((kind, gpus.display), gpus.count));
        }
        let gpu_link = self.link("box.gpu_link", group.gpu_link)?;
        let host_link = self.link("box.host_link", group.host_link)?;
        let switch_link = self.link("box.switch_link", group.switch_link)?;
        let cables = cables(group.cabling, group.switches);
        for _ in 0..group.count {
            let name = self.number(&group.name);
            let at = BoxIx(self.rack.boxes.len());
            let first = self.rack.gpus.len();
            let mut switches = self.switches(&name, group.switches, &cables);
            for (index, (kind, display)) in kinds.iter().enumerate() {
                // Neighbouring GPUs share a switch, and the switches are filled evenly.
                let switch = index * group.switches / count;
                switches[switch].gpus.push(GpuIx(first + index));
                let gpu = self.gpu(&name, index + 1, kind, Home::Box(at, switch), *display, gpu_link);
                self.rack.gpus.push(gpu);
            }
            self.rack.boxes.push(GpuBox {
                manufacturer: group.manufacturer.clone(),
                model: group.model.clone(),
                serial: self.rack.identity.serial(&format!("box {name}")),
                uuid: self.rack.identity.uuid(&format!("box {name}")),
                name,
                switches,
                cables: cables.clone(),
                gpus: first..self.rack.gpus.len(),
                ports: Vec::new(),
                gpu_link,
                host_link,
                switch_link,
            });
        }
        Ok(())
    }

    fn switches(&self, of: &str, count: usize, cables: &[(usize, usize)]) -> Vec<Switch> {
        let mut switches: Vec<Switch> = (1..=count)
            .map(|number| Switch {
                name: format!("switch-{number}"),
                serial: self.rack.identity.serial(&format!("switch {of}/{number}")),
                ..Switch::default()
            })
            .collect();
        for &(a, b) in cables {
            switches[a].switches.push(b);
            switches[b].switches.push(a);
        }
        switches
    }

    fn gpu(
        &self,
        of: &str,
        slot: usize,
        kind: &'static GpuKind,
        home: Home,
        display: bool,
        link: LinkWidth,
    ) -> Gpu {
        let what = format!("gpu {of}/{slot}");
        Gpu {
            name: format!("gpu-{slot}"),
            kind,
            home,
            slot,
            uuid: self.rack.identity.uuid(&what),
            serial: self.rack.identity.serial(&what),
            display,
            link: slower(kind.link, link),
        }
    }

    fn hosts(&mut self, group: &RawHost) -> Result<(), RackError> {
        self.check_name("host.name", &group.name)?;
        self.check_count("host.count", group.count, 1, MOST_ENDPOINTS)?;
        self.check_count("host.ports", group.ports, 0, 16)?;
        self.check_count("host.slots", group.slots as usize, 1, 256)?;
        let boxes = self.boxes_named(&group.boxes)?;
        let soldered = match &group.soldered {
            None => Vec::new(),
            Some(gpus) => {
                self.check_count("host.soldered.count", gpus.count, 1, 16)?;
                let kind = self.kind("host.soldered.kind", &gpus.kind, false)?;
                vec![(kind, gpus.display); gpus.count]
            }
        };
        for index in 0..group.count {
            let name = self.number(&group.name);
            let host = HostIx(self.rack.hosts.len());
            let first_port = self.rack.ports.len();
            // Hosts are spread evenly over the boxes; the further ports of one host go to the next boxes.
            let first_box = index * boxes.len() / group.count;
            for number in 1..=group.ports {
                let gpu_box = boxes[(first_box + number - 1) % boxes.len()];
                self.port(host, &name, number, gpu_box, group.slots);
            }
            let first_gpu = self.rack.gpus.len();
            for (slot, (kind, display)) in soldered.iter().enumerate() {
                let gpu = self.gpu(&name, slot + 1, kind, Home::Host(host), *display, kind.link);
                self.rack.gpus.push(gpu);
            }
            self.rack.hosts.push(Host {
                manufacturer: group.manufacturer.clone(),
                model: group.model.clone(),
                serial: self.rack.identity.serial(&format!("host {name}")),
                uuid: self.rack.identity.uuid(&format!("host {name}")),
                name,
                ports: first_port..self.rack.ports.len(),
                soldered: first_gpu..self.rack.gpus.len(),
            });
        }
        Ok(())
    }

    fn boxes_named(&self, names: &[String]) -> Result<Vec<BoxIx>, RackError> {
        if names.is_empty() {
            return Ok(self.rack.box_ixs().collect());
        }
        let find = |name: &String| match self.rack.box_named(name) {
            Some(at) => Ok(at),
            None => {
                let known: Vec<&str> = self.rack.boxes.iter().map(|b| b.name.as_str()).collect();
                self.wrong("host.boxes", format!("{name:?}"), known.join(", "))
            }
        };
        names.iter().map(find).collect()
    }

    fn port(&mut self, host: HostIx, host_name: &str, number: usize, gpu_box: BoxIx, slots: u32) {
        let at = PortIx(self.rack.ports.len());
        let target = &mut self.rack.boxes[gpu_box.0];
        let switch = target.ports.len() % target.switches.len();
        target.ports.push(at);
        target.switches[switch].hosts.push(at);
        self.rack.ports.push(HostPort {
            host,
            number,
            gpu_box,
            switch,
            uuid: self.rack.identity.uuid(&format!("port {host_name}/{number}")),
            slots,
        });
    }

    fn check_faults(&self) -> Result<(), RackError> {
        for fault in &self.rack.faults {
            if let Err(UnknownName { what, name }) = fault.check(&self.rack) {
                let key = if what == "GPU" {
                    "fault.does.vanish.gpu"
                } else {
                    "fault.endpoint"
                };
                let allowed = format!("an {what} of this rack, such as box-1, host-1-bmc or box-1/gpu-3");
                return self.wrong(key, format!("{name:?}"), allowed.replace("an GPU", "a GPU"));
            }
        }
        Ok(())
    }

    fn prebound(&mut self, gpu_name: &str, port_name: &str) -> Result<(), RackError> {
        let Some(gpu) = self.rack.gpu_named(gpu_name) else {
            return self.wrong(
                "prebound.gpu",
                format!("{gpu_name:?}"),
                "a GPU of a box, such as box-1/gpu-3",
            );
        };
        let Some(port) = self.rack.port_named(port_name) else {
            return self.wrong(
                "prebound.port",
                format!("{port_name:?}"),
                "a host's port, such as host-2/port-1",
            );
        };
        if self.rack.box_of(gpu) != Some(self.rack[port].gpu_box) {
            let to = &self.rack[self.rack[port].gpu_box].name;
            let allowed = format!("a GPU of {to}, to which {port_name} is cabled");
            return self.wrong("prebound.gpu", format!("{gpu_name:?}"), allowed);
        }
        if self.rack.prebound.iter().any(|(taken, _)| *taken == gpu) {
            return self.wrong("prebound.gpu", format!("{gpu_name:?} twice"), "each GPU once");
        }
        let taken = self.rack.prebound.iter().filter(|(_, at)| *at == port).count();
        if taken >= self.rack[port].slots as usize {
            let allowed = format!("at most {} GPUs, its slots", self.rack[port].slots);
            return self.wrong("prebound.port", format!("{port_name:?}"), allowed);
        }
        self.rack.prebound.push((gpu, port));
        Ok(())
    }
}

fn gpu_count(groups: &[RawGpus]) -> usize {
    groups
        .iter()
        .map(|gpus| gpus.count)
        .fold(0, usize::saturating_add)
}

/// Cables between switches, each once, the lower number first.
fn cables(cabling: Cabling, switches: usize) -> Vec<(usize, usize)> {
    let line = (1..switches).map(|b| (b - 1, b));
    match cabling {
        Cabling::Line => line.collect(),
        // A ring of two would be two cables between the same switches.
        Cabling::Ring if switches > 2 => line.chain([(0, switches - 1)]).collect(),
        Cabling::Ring => line.collect(),
        Cabling::Star => (1..switches).map(|b| (0, b)).collect(),
        Cabling::Mesh => (0..switches)
            .flat_map(|a| (a + 1..switches).map(move |b| (a, b)))
            .collect(),
    }
}

/// What a card and a slot agree on. What is not known of one is taken from the other.
fn slower(card: LinkWidth, slot: LinkWidth) -> LinkWidth {
    fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
    LinkWidth {
        generation: least(card.generation, slot.generation),
        lanes: least(card.lanes, slot.lanes),
    }
}
