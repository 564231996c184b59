//! Notices: what people should know, as events that the server publishes itself.
//!
//! Notices are events of the reserved tenant and, where they concern a tenant, of that tenant. Lanes deliver them, so
//! that *resolved* never overtakes *fired*. [`prepare`] makes the tenant, its event types, and the endpoints of the
//! sections `[[notices]]`; [`Notices`] publishes.

mod types;
mod section;
mod managed;
mod publish;
mod test_notices;

pub(crate) use managed::prepare;
pub(crate) use publish::Notices;
pub(crate) use section::resolve;
