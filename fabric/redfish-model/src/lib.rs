//! Redfish types, generated from DMTF's schemas: lenient, both directions.
