//! One Redfish service: whose it is, its door, and what it shares with the others.

use super::data_dir::DataDir;
use crate::access::{Access, Account};
use crate::emulation::Emulation;
use crate::resources::Service;
use std::sync::Arc;

pub(super) struct Endpoint {
    pub name: String,
    pub service: Service,
    pub emulation: Arc<Emulation>,
    pub access: Access,
    pub store: Option<Arc<DataDir>>,
}

impl Endpoint {
    pub fn new(
        emulation: &Arc<Emulation>,
        service: Service,
        account: &Arc<Account>,
        store: Option<Arc<DataDir>>,
    ) -> Self {
        let options = &emulation.rack().options;
        Self {
            name: service.name(emulation.rack()),
            service,
            access: Access::new(Arc::clone(account), options.max_sessions, options.session_idle),
            emulation: Arc::clone(emulation),
            store,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self.service {
            Service::Box(_) => "fabric-manager",
            Service::Bmc(_) => "bmc",
        }
    }
}
