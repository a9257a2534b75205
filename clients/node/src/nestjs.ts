/** For NestJS: methods that run under a lock. */

import { Inject } from "@nestjs/common";
import type {} from "reflect-metadata";
import { type LockOptions, Locks } from "./locks.js";

const LOCKS = Symbol("tether-locks");

/**
 * The method of a provider runs once at a time, in all instances of the program: while it runs elsewhere, a call gives undefined
 * at once. `Locks` must be a provider, too.
 */
export function Singleton(name: string, options: LockOptions = {}): MethodDecorator {
  return (target, _, descriptor: PropertyDescriptor) => {
    Inject(Locks)(target, LOCKS);
    const body: (...given: unknown[]) => unknown = descriptor.value;
    async function single(this: { [LOCKS]: Locks }, ...given: unknown[]): Promise<unknown> {
      return this[LOCKS].singleton(name, () => body.apply(this, given), options)();
    }
    // What decorators below this one say of the method, such as @Cron of @nestjs/schedule.
    for (const key of Reflect.getOwnMetadataKeys(body)) {
      Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, body), single);
    }
    descriptor.value = single;
  };
}
