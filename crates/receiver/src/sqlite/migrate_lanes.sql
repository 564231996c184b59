-- From places by key to places by line. Ids, noted gaps and queued events are kept.
drop table railpost_lanes;
alter table railpost_gaps add column line text not null default '';
drop index railpost_work_lane;
alter table railpost_work rename column lane to key;
alter table railpost_work add column line text;
